"""`prefixaudit template check` and `template diff`: formats, exit codes, schemas, privacy."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import prefixaudit
from tests.cli.running import Runner

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "tests" / "data" / "templates"
SAMPLE = ROOT / "samples" / "support-chat"
SCHEMAS = Path(prefixaudit.__file__).parent / "schemas"
SARIF = ROOT / "tests" / "data" / "schemas" / "sarif-2.1.0.json"


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"template-{name}.schema.json").read_bytes())


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """The sample's template with one more token at the start."""
    text = (SAMPLE / "model" / "chat_template.jinja").read_text()
    path = tmp_path / "new.jinja"
    path.write_text(text.replace("{{- bos_token }}", "{{- bos_token ~ '<|note|>' }}"))
    return path


def test_stable_template_passes(cli: Runner) -> None:
    ran = cli("template", "check", SAMPLE / "model")

    assert ran.code == 0
    assert ran.err == ""
    assert "lengths in tokens" in ran.out
    assert ran.out.endswith("\nexit 0: passed\n")


def test_table_of_a_family(cli: Runner) -> None:
    ran = cli("template", "check", TEMPLATES / "trl_qwen3.jinja", "--fail-on", "low")

    assert ran.code == 1
    lines = {" ".join(line.split()) for line in ran.out.splitlines()}
    assert "plain turns yes" in lines
    assert any(line.startswith("plain turns, enable_thinking=false no 19 of ") for line in lines)
    assert all(len(line) <= 100 for line in ran.out.splitlines())


@pytest.mark.parametrize(
    ("fail_on", "code"), [("never", 0), ("high", 1), ("medium", 1), ("informational", 1)]
)
def test_exit_code_follows_fail_on(cli: Runner, fail_on: str, code: int) -> None:
    ran = cli("template", "check", TEMPLATES / "mistral_nemo.jinja", "--fail-on", fail_on)

    assert ran.code == code


def test_medium_fails_unless_said_otherwise(cli: Runner) -> None:
    medium = cli("template", "check", TEMPLATES / "command_r_plus.jinja")
    low = cli("template", "check", TEMPLATES / "trl_deepseek_r1_distill.jinja")

    assert (medium.code, low.code) == (1, 0)


def test_template_that_renders_nothing_is_incomplete(cli: Runner, tmp_path: Path) -> None:
    path = tmp_path / "a.jinja"
    path.write_text("{{ raise_exception('no') }}")

    ran = cli("template", "check", path)

    assert ran.code == 3
    assert "incomplete: the template renders none" in ran.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% for %}", "a.jinja: the chat template, line 1, isn't valid Jinja"),
        (None, "a.jinja: can't be read"),
    ],
)
def test_unusable_template_is_a_configuration_error(
    cli: Runner, tmp_path: Path, text: str | None, message: str
) -> None:
    path = tmp_path / "a.jinja"
    if text is not None:
        path.write_text(text)

    ran = cli("template", "check", path)

    assert ran.code == 2
    assert message in ran.err


@pytest.mark.parametrize("value", ["{", "[1]", "1"])
def test_kwargs_have_to_be_an_object(cli: Runner, value: str) -> None:
    ran = cli("template", "check", SAMPLE / "model", "--chat-template-kwargs", value)

    assert ran.code == 2
    assert "--chat-template-kwargs" in ran.err


def test_kwargs_reach_the_template(cli: Runner, tmp_path: Path) -> None:
    path = tmp_path / "a.jinja"
    path.write_text("{{ extra.upper() }}" + (SAMPLE / "model" / "chat_template.jinja").read_text())

    without = cli("template", "check", path)
    given = cli("template", "check", path, "--chat-template-kwargs", '{"extra": "a"}')

    assert (without.code, given.code) == (3, 0)


@pytest.mark.parametrize("name", ["mistral_nemo", "kimi_k2", "trl_gptoss", "trl_phi3"])
def test_json_of_check_matches_its_schema(cli: Runner, name: str) -> None:
    ran = cli("template", "check", TEMPLATES / f"{name}.jinja", "-f", "json", "--fail-on", "never")

    jsonschema.validate(ran.json, schema("check"))
    assert ran.json["exit_code"] == ran.code == 0
    assert {finding["rule"] for finding in ran.json["findings"]}


def test_sarif_is_valid_and_points_into_the_template(cli: Runner) -> None:
    path = TEMPLATES / "kimi_k2.jinja"

    ran = cli("template", "check", path, "-f", "sarif")

    jsonschema.Draft4Validator(json.loads(SARIF.read_bytes())).validate(ran.json)
    [result] = ran.json["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": 7}
    assert place["artifactLocation"]["uri"].endswith("/kimi_k2.jinja")


def test_junit_fails_the_rules_that_are_broken(cli: Runner) -> None:
    ran = cli("template", "check", TEMPLATES / "mistral_nemo.jinja", "-f", "junit")

    cases = ET.fromstring(ran.out).iter("testcase")
    failed = {case.get("name") for case in cases if case.find("failure") is not None}
    assert failed == {
        "template-hides-system-text",
        "template-moves-system-text",
        "template-moves-tools",
    }


def test_annotations_and_markdown_name_the_rule(cli: Runner) -> None:
    path = TEMPLATES / "kimi_k2.jinja"

    assert (
        ",line=7,title=template-needs-forbidden (medium)::"
        in cli("template", "check", path, "-f", "github").out
    )
    markdown = cli("template", "check", path, "-f", "markdown").out
    assert markdown.startswith("## Chat template check: ")
    assert "`template-needs-forbidden`" in markdown


def test_unknown_format_and_server_are_usage_errors(cli: Runner) -> None:
    path = TEMPLATES / "kimi_k2.jinja"

    for arguments, message in (
        (("-f", "pdf"), "unknown output format"),
        (("--server", "tgi"), "unknown server 'tgi'"),
        (("--fail-on", "huge"), "--fail-on"),
    ):
        ran = cli("template", "check", path, *arguments)
        assert ran.code == 2
        assert message in ran.err


def test_text_around_a_difference_is_shown_when_asked_for(cli: Runner) -> None:
    path = TEMPLATES / "trl_qwen3_5_think.jinja"

    assert "<think>" not in cli("template", "check", path).out
    assert "<think>\\n" in cli("template", "check", path, "--show-text").out


def test_diff_of_a_template_with_itself(cli: Runner) -> None:
    ran = cli("template", "diff", SAMPLE / "model", SAMPLE / "model")

    assert ran.code == 0
    assert "0 of 15 change" in ran.out


def test_diff_on_a_log_agrees_with_analyze(cli: Runner, changed: Path) -> None:
    log = SAMPLE / "requests.jsonl"

    ran = cli("template", "diff", SAMPLE / "model", changed, "--log", log, "-f", "json")

    jsonschema.validate(ran.json, schema("diff"))
    for side, template in (
        ("before", SAMPLE / "model" / "chat_template.jinja"),
        ("after", changed),
    ):
        totals = cli("analyze", log, "--chat-template", template, "-f", "json", "--no-audit").json[
            "totals"
        ]
        for name in ("num_prompt_tokens", "num_cached_tokens", "token_hit_rate"):
            assert ran.json["log"][side][name] == totals[name]
        assert ran.json["log"][side]["prefill_flops"] == pytest.approx(totals["prefill_flops"])


def test_diff_prints_no_text_of_the_log(cli: Runner, changed: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    messages = [{"role": "user", "content": "CANARY " * 20}]
    body = {"model": "m", "messages": messages}
    log.write_text(f"{json.dumps(body)}\n" * 3)

    for output_format in ("text", "json", "sarif", "junit", "github", "markdown"):
        ran = cli(
            "template", "diff", SAMPLE / "model", changed, "--log", log, "--model",
            SAMPLE / "model", "-f", output_format, "--show-text",
        )  # fmt: skip
        assert ran.code in (0, 1)
        assert "CANARY" not in ran.out + ran.err


def test_diff_without_a_renderable_request_is_incomplete(
    cli: Runner, changed: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"model": "m", "messages": []}\nnot json\n')

    ran = cli("template", "diff", SAMPLE / "model", changed, "--log", log)

    assert ran.code == 3


def test_rules_are_listed_and_explained(cli: Runner) -> None:
    listed = cli("list", "template-rules")
    page = cli("explain", "template-moves-tools")

    assert "template-moves-tools" in listed.out
    assert "What to do" in page.out
