"""1,619 prompts of public agent runs: the waterfall adds up, and unstable pairs have a cause."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from prefixaudit.analysis import AnalysisOptions, analyse
from prefixaudit.core.report import Report
from prefixaudit.deployment import Overrides, load_deployment

TRACES = Path(__file__).parent.parent.parent.parent / "shared" / "traces" / "lmcache-agent"
MODEL = Path(__file__).parent.parent / "data" / "cases" / "B001-clock-seconds-in-system-prompt"

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the traces aren't here")


@pytest.fixture(scope="module")
def report() -> Report:
    """The traces through a tokenizer of bytes: all that is said of tokens is said of characters."""
    logs = sorted(str(path) for path in TRACES.glob("*/*.jsonl.gz"))
    deployment = load_deployment(None, Overrides(model_dir=MODEL, block_size=64))
    return analyse(logs, deployment, AnalysisOptions(audit=False, jobs=1))


def test_successive_pairs_are_those_of_the_readme() -> None:
    last: dict[str, str] = {}
    num_pairs = num_extending = 0
    for path in sorted(TRACES.glob("*/*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for record in map(json.loads, lines):
                session, text = record["session_id"], record["input"]
                if session in last:
                    num_pairs += 1
                    num_extending += text.startswith(last[session])
                last[session] = text

    assert (num_extending, num_pairs) == (853, 1_550)


def test_places_add_up(report: Report) -> None:
    assert report.why is not None
    waterfall = report.why.waterfall

    assert waterfall.num_prompt_tokens == report.num_prompt_tokens
    assert sum(place.num_tokens for place in waterfall.places) == report.num_prompt_tokens
    assert (waterfall.by_request >= 0).all()
    assert waterfall.place("reused").num_tokens == report.this_pool.num_cached_tokens


def test_every_request_has_a_relation(report: Report) -> None:
    assert report.why is not None

    assert sum(report.why.relations.values()) == report.log.num_requests


def test_unstable_requests_have_a_cause(report: Report) -> None:
    assert report.why is not None
    counts = Counter[str]()
    for cause in report.why.causes:
        counts[cause.kind] += len(cause.positions)
    total = sum(counts.values())

    assert total == report.why.relations["unstable"]
    assert total > 100
    assert counts["other"] + counts["tokens-differ"] <= 0.05 * total
    assert len(counts) >= 4


def test_causes_add_up_to_the_waterfall(report: Report) -> None:
    assert report.why is not None

    lost = sum(cause.num_lost_tokens for cause in report.why.causes)
    assert lost == report.why.waterfall.place("unstable-prefix").num_tokens
