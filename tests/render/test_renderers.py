"""Reports as text, JSON and rows: complete, safe to print, and null where nothing is known."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import jsonschema
import pytest

from prefixaudit.core.report import RenderOptions
from prefixaudit.render import RENDERERS
from prefixaudit.render._plot import Mark, plot_curve, short_count
from prefixaudit.render._rows import per_request_lines
from tests.render.reports import HOSTILE, standard_report

SCHEMAS = Path(__file__).parent.parent.parent / "prefixaudit" / "schemas"


def _text(**options: bool) -> str:
    return RENDERERS["text"].render(standard_report(), RenderOptions(**options))


def test_text_has_no_control_character_but_line_feeds() -> None:
    controls = {
        character
        for character in _text(show_skipped=True)
        if unicodedata.category(character) in ("Cc", "Cf")
    }

    assert controls == {"\n"}


def test_text_fits_a_hundred_columns() -> None:
    assert max(len(line) for line in _text(show_skipped=True).splitlines()) <= 100


def test_colour_adds_only_colour() -> None:
    plain, coloured = _text(), _text(colour=True)

    assert "\x1b[1mREUSE" in coloured
    for code in ("\x1b[1m", "\x1b[0m", "\x1b[36m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain


@pytest.mark.parametrize(
    "words",
    [
        "4 requests from 2 tenants over 23 h 58 min · 1 record skipped (1 cut-line)",
        "vllm 0.33.0",
        "pool: 100 blocks (0.2 GiB)",
        "3 of 4 match the server's counts",
        "p50 160 · p90 320 · p99 960",
        "2.00 of 5.00 PFLOP",
        "50.00 %        75.00 %    cached / prompt tokens",
        "for every request: lora_revision",
        "unknown for 1 of 4 requests",
        "see each other's reuse",
        "exit 0",
    ],
)
def test_text_says(words: str) -> None:
    assert words in " ".join(_text().split("\n  ")).replace("\n", " ") or words in _text()


def test_incomplete_audit_says_why() -> None:
    report = standard_report(incomplete="nothing was replayed")

    text = RENDERERS["text"].render(report, RenderOptions())

    assert "INCOMPLETE  nothing was replayed" in text
    assert text.endswith("exit 3: the audit is incomplete\n")
    assert report.exit_code == 3


def test_json_matches_its_schema_and_keeps_text_from_outside() -> None:
    schema = json.loads((SCHEMAS / "report.schema.json").read_text())

    values = json.loads(RENDERERS["json"].render(standard_report(), RenderOptions()))

    jsonschema.validate(values, schema)
    assert values["log"]["files"][0]["path"] == HOSTILE
    assert values["totals"]["token_hit_rate"] == 0.5
    assert values["endless_pool"]["token_hit_rate"] == 0.75


def test_rows_are_in_log_order_and_null_where_unknown() -> None:
    rows = [
        json.loads(line) for line in b"".join(per_request_lines(standard_report())).splitlines()
    ]

    assert [row["index"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["request_id"] for row in rows] == ["a", "b", None, HOSTILE, "d"]
    assert [row["num_cached_tokens_reported"] for row in rows] == [None, 0, None, 16, None]
    assert [row["arrival_s"] for row in rows] == [0.0, 1.5, None, None, 3.0]
    assert rows[2]["error"].startswith("cut-line: ")
    assert rows[2]["num_cached_tokens"] is None
    assert rows[3]["donors"] == [
        {"request_id": "b", "num_tokens": 16},
        {"request_id": "a", "num_tokens": 16},
    ]
    assert rows[3]["prefill_flops"] is None


def test_curve_passes_its_points_and_marks() -> None:
    """A straight line in the logarithm from 1 to 10,000 blocks: the middle is half as high."""
    lines = plot_curve([1, 10_000], [0.0, 1.0], [Mark(capacity_blocks=100, symbol="◆")], width=60)

    body = lines[:11]
    assert body[0].startswith(" 100% ┤")
    assert body[10].startswith("   0% ┤")
    assert body[0].endswith("─") or body[0].endswith("╭")
    [marked] = [number for number, line in enumerate(body) if "◆" in line]
    assert marked == 5
    assert max(len(line) for line in lines) <= 60


def test_flat_curve_is_drawn() -> None:
    lines = plot_curve([1, 5], [0.0, 0.0], [], width=40)

    assert any("─" * 20 in line for line in lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (1000, "1k"), (1234, "1.2k"), (21_400, "21k"), (3.4e6, "3.4M")],
)
def test_counts_in_short(value: float, text: str) -> None:
    assert short_count(value) == text
