"""Templates of model families: each does what its family is known to do, and nothing else moves.

What is known comes from rendering 70 published templates with transformers alone, by hand: which
grow at their end, by how many characters they don't, which read the clock, which print None.
"""

from __future__ import annotations

from functools import cache

import pytest

from prefixaudit.core.template import TemplateReport
from prefixaudit.templates import check_templates, load_source
from tests.templates.rendering import TEMPLATES, answer, rules

# (plain turns, with tools, after a tool loop, the same with reasoning, thinking off)
GROWS = {
    "command_r_plus": ("yes", "no", "no", "no", "yes"),
    "granite_3_3": ("yes", "yes", "yes", "yes", "yes"),
    "kimi_k2": ("yes", "yes", "refused", "refused", "yes"),
    "llama_3_2": ("yes", "yes", "yes", "yes", "yes"),
    "minimax_m2": ("no", "no", "no", "no", "no"),
    "mistral_nemo": ("no", "no", "no", "no", "no"),
    "mistral_small_3_2": ("yes", "no", "no", "no", "yes"),
    "trl_deepseek_r1_distill": ("no", "no", "yes", "yes", "no"),
    "trl_glm4moe": ("yes", "yes", "yes", "no", "yes"),
    "trl_gptoss": ("yes", "yes", "yes", "no", "yes"),
    "trl_phi3": ("yes", "yes", "yes", "yes", "yes"),
    "trl_qwen2_5": ("yes", "yes", "yes", "yes", "yes"),
    "trl_qwen3": ("yes", "yes", "yes", "no", "no"),
    "trl_qwen3_5_think": ("no", "no", "no", "no", "no"),
}
QUESTIONS = (
    "plain-turns",
    "turns-with-tools",
    "after-tool-loop",
    "after-tool-loop-with-reasoning",
    "thinking-off",
)
CLOCKS = {"granite_3_3", "llama_3_2", "mistral_small_3_2", "trl_gptoss"}
PRINT_NONE = {"command_r_plus", "minimax_m2", "trl_glm4moe"}
OPEN_A_THOUGHT = ("minimax_m2", "trl_deepseek_r1_distill", "trl_qwen3_5_think")
REWRITE_REASONING = ("trl_qwen3", "trl_gptoss", "trl_glm4moe", "trl_qwen3_5_think", "minimax_m2")


@cache
def report(name: str) -> TemplateReport:
    return check_templates(load_source(TEMPLATES / f"{name}.jinja", None))


@pytest.mark.parametrize("name", GROWS)
def test_family_grows_at_its_end_or_not(name: str) -> None:
    found = tuple(answer(report(name), question).verdict for question in QUESTIONS)

    assert found == GROWS[name]


@pytest.mark.parametrize("name", GROWS)
def test_clock_is_found_where_the_family_reads_it(name: str) -> None:
    reads = answer(report(name), "clock")

    assert (reads.verdict == "yes") == (name in CLOCKS)
    assert ("clock-each-day" in rules(report(name))) == (name in CLOCKS)


@pytest.mark.parametrize("name", GROWS)
def test_word_none_is_found_where_the_family_prints_it(name: str) -> None:
    assert ("prints-none" in rules(report(name))) == (name in PRINT_NONE)


@pytest.mark.parametrize("name", OPEN_A_THOUGHT)
def test_opening_think_tag_is_the_only_loss_of_plain_turns(name: str) -> None:
    """`<think>` and a line feed: 8 characters."""
    found = answer(report(name), "plain-turns")

    assert (found.num_lost, found.about) == (8, "only the generation prompt's end")


@pytest.mark.parametrize("name", REWRITE_REASONING)
def test_dropped_reasoning_is_a_cost_and_no_fault(name: str) -> None:
    [finding] = [f for f in report(name).findings if f.rule == "template-drops-reasoning"]

    assert finding.severity.label == "informational"
    assert "after a tool loop, with reasoning" in finding.observation.message
    assert "rewrites-history" not in rules(report(name))


def test_empty_thought_of_qwen3_is_lost_with_the_generation_prompt() -> None:
    """`<think>`, two line feeds, `</think>`, two line feeds: 19 characters."""
    found = answer(report("trl_qwen3"), "thinking-off")

    assert (found.num_lost, found.about) == (19, "only the generation prompt's end")


def test_mistral_nemo_moves_system_text_and_tools() -> None:
    assert {"moves-system-text", "hides-system-text", "moves-tools"} <= rules(
        report("mistral_nemo")
    )


def test_mistral_small_moves_tools_but_not_the_system_text() -> None:
    found = rules(report("mistral_small_3_2"))

    assert "moves-tools" in found
    assert not {"moves-system-text", "hides-system-text"} & found


def test_command_r_moves_its_own_instruction() -> None:
    assert "moves-fixed-text" in rules(report("command_r_plus"))


def test_kimi_needs_what_the_sandbox_forbids() -> None:
    [finding] = [f for f in report("kimi_k2").findings if f.rule == "template-needs-forbidden"]

    assert finding.observation.location is not None
    assert finding.observation.location.line == 7  # `ids.append`


def test_phi_leaves_out_what_tools_say() -> None:
    assert answer(report("trl_phi3"), "tool-results").verdict == "no"
    assert answer(report("trl_phi3"), "tool-definitions").verdict == "no"
    assert {"drops-message", "ignores-tools"} <= rules(report("trl_phi3"))
