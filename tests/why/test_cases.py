"""Public bug reports on prefixes: figures, place, cause, and what a repair would bring.

The expected figures stand in each case's expected.json; they are right by reasoning (see its
`reason`), not taken from any tool.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from prefixaudit.core.report import Report
from prefixaudit.core.why import UnstableCause
from tests.why.logs import case_folder, hits, kinds, only_cause, report_of, why_of


def _expected(name: str) -> Any:
    return json.loads((case_folder(name) / "expected.json").read_text())


def _answer(name: str) -> Any:
    return _expected(name)["answer"]


def _report(name: str, *, what_if: bool = False, engine: str | None = None) -> Report:
    folder = case_folder(name)
    [log] = folder.glob("*.jsonl")
    return report_of(log, model=folder, what_if=what_if, engine=engine)


def _repaired(cause: UnstableCause) -> list[int]:
    assert cause.what_if is not None
    return [int(number) for number in cause.what_if.hits]


def _first_differing_tokens(report: Report) -> list[int]:
    return [cause.first_token for cause in why_of(report).causes]


@pytest.mark.parametrize(
    "name",
    ["B001", "B003", "B004", "B006", "B007", "B009", "B011", "B012", "B013", "B015", "B017"],
)
def test_places_add_up(name: str) -> None:
    report = _report(name)

    waterfall = why_of(report).waterfall
    assert sum(place.num_tokens for place in waterfall.places) == report.num_prompt_tokens
    assert waterfall.place("reused").num_tokens == sum(hits(report))


def test_clock_in_the_system_prompt() -> None:
    answer, [finding] = _answer("B001"), _expected("B001")["findings"]

    cause = only_cause(_report("B001", what_if=True))

    assert cause.kind == "clock"
    assert cause.intent == "fault"
    assert cause.place == finding["field"]
    assert cause.period_s == 1
    assert list(cause.positions) == finding["requests"]
    assert cause.first_token == finding["first_divergent_token"]
    assert _repaired(cause) == answer["hit_tokens_if_moved"]
    assert "58.59 %" in cause.advice  # 1136 of 1939 tokens


def test_must_not_call_requests_behind_a_clock_unrelated() -> None:
    why = why_of(_report("B001"))

    assert why.relations == {"first of its kind": 1, "unstable": 3}
    assert all("messages[0]" in cause.place for cause in why.causes)


def test_date_of_the_template_changes_once_a_day() -> None:
    [finding, _] = _expected("B003")["findings"]

    cause = only_cause(_report("B003"))

    assert cause.kind == "template-clock"
    assert cause.source == finding["source"]
    assert cause.period_s == finding["period_seconds"]
    assert list(cause.positions) == finding["requests"]
    assert cause.first_token == _answer("B003")["requests"][2]["longest_common_prefix_tokens"]
    assert cause.intent == "cost"


def test_replay_says_that_the_clock_was_pinned() -> None:
    report = _report("B003")

    assert any("rendered at its arrival, in UTC" in note for note in report.replay_notes)


def test_pinned_date_is_shared_across_midnight() -> None:
    cause = only_cause(_report("B003", what_if=True))

    # With one date the third prompt shares 366 tokens with the two before it, as they do.
    assert _repaired(cause) == [0, 352, 352, 352]


def test_empty_thought_of_the_generation_prompt() -> None:
    answer = _answer("B004")

    report = _report("B004", what_if=True)

    cause = only_cause(report)
    assert cause.kind == "generation-prompt"
    assert cause.source == "chat template"
    assert cause.intent == "cost"
    assert list(cause.positions) == [1, 2]
    assert cause.details["num_tail_tokens"] == answer["lost_tail_tokens_of_previous_prompt"]
    assert cause.first_token == answer["requests"][1]["longest_common_prefix_tokens"]
    # Kept in the history, all 365 (22 blocks) and all 490 tokens before (30 blocks) are hit.
    assert _repaired(cause) == [0, 352, 480]
    assert why_of(report).waterfall.place("unstable-prefix").num_tokens == 0


def test_thought_is_cut_out_of_the_history() -> None:
    report = _report("B006", what_if=True)

    cause = only_cause(report)
    assert cause.kind == "reasoning-dropped"
    assert cause.source == "chat template"
    assert cause.intent == "cost"
    assert list(cause.positions) == [1]
    assert cause.first_token == _answer("B006")["first_divergent_token_request_1"]
    assert "extends an earlier prompt" not in why_of(report).relations
    # 353 prompt tokens and all but the last of 120 generated ones: 29 blocks.
    num_generated = 120
    assert _repaired(cause) == [0, (353 + num_generated - 1) // 16 * 16]


def test_order_of_tools() -> None:
    answer, [finding] = _answer("B007"), _expected("B007")["findings"]

    report = _report("B007", what_if=True)

    cause = only_cause(report)
    assert cause.kind == "tool-order"
    assert list(cause.positions) == finding["requests"]
    assert cause.details["first_tool_index"] == finding["first_difference_at_tool_index"]
    assert cause.first_token == answer["requests"][2]["longest_common_prefix_tokens"]
    assert _repaired(cause) == [0, 992, 992, 992]
    assert "tools-changed" not in kinds(report)


def test_tools_that_wander_with_the_newest_turn() -> None:
    [finding] = _expected("B009")["findings"]

    report = _report("B009", what_if=True)

    cause = only_cause(report)
    assert cause.kind == "tools-moved"
    assert cause.source == finding["source"]
    assert list(cause.positions) == finding["requests"]
    assert cause.first_token == _answer("B009")["requests"][1]["longest_common_prefix_tokens"]
    assert _repaired(cause) == _answer("B009")["hit_tokens_if_tools_stood_first"]
    assert "tools-changed" not in kinds(report)


def test_second_begin_token() -> None:
    report = _report("B011", what_if=True)

    cause = only_cause(report)
    assert cause.kind == "double-bos"
    assert list(cause.positions) == _expected("B011")["findings"][0]["requests"]
    assert hits(report) == _answer("B011")["hit_tokens"]
    # Without it all three prompts are the same 356 tokens.
    assert _repaired(cause) == [0, 352, 352]


def test_arguments_dumped_again() -> None:
    answer, [finding] = _answer("B012"), _expected("B012")["findings"]

    cause = only_cause(_report("B012", what_if=True))

    assert cause.kind == "arguments-reserialised"
    assert cause.place == finding["field"]
    assert list(cause.positions) == finding["requests"]
    assert cause.first_token == answer["first_divergent_token_request_1"]
    assert _repaired(cause)[1] == answer["hit_tokens_if_arguments_kept_verbatim"]


def test_billing_header() -> None:
    answer, [finding] = _answer("B013"), _expected("B013")["findings"]

    cause = only_cause(_report("B013", what_if=True))

    assert cause.kind == "billing-header"
    assert cause.place == finding["field"]
    assert list(cause.positions) == finding["requests"]
    assert cause.first_token == answer["first_divergent_token"]
    assert _repaired(cause) == answer["hit_tokens_with_header_stripped"]


def test_window_of_messages() -> None:
    answer, [finding] = _answer("B015"), _expected("B015")["findings"]

    cause = only_cause(_report("B015", what_if=True))

    assert cause.kind == "window-slides"
    assert cause.place == finding["field"]
    assert list(cause.positions) == finding["requests"]
    assert cause.positions[0] == answer["first_request_with_moved_window"]
    assert _repaired(cause) == answer["hit_tokens_with_window_start_on_multiples_of_4"]


def test_null_and_empty_content() -> None:
    printed, toggled = _expected("B017")["findings"]

    report = _report("B017")

    found = {cause.kind: cause for cause in why_of(report).causes}
    assert set(found) == {"null-printed", "null-content"}
    assert found["null-printed"].place == printed["field"]
    assert list(found["null-printed"].positions) == printed["requests"]
    assert list(found["null-content"].positions) == toggled["requests"]
    assert found["null-content"].place == "messages[2].content"
    lcp = _answer("B017")["requests"][2]["longest_common_prefix_tokens"]
    assert found["null-content"].first_token == lcp


def test_server_that_sends_an_empty_text_prints_no_null() -> None:
    """vLLM's server turns null content into an empty text before the template sees it."""
    assert kinds(_report("B017", engine="vllm@0.33.0")) == []
