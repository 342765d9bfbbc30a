"""One template a fault: what is found, and that a stable template has none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from prefixaudit.errors import ConfigurationError, UsageError
from prefixaudit.prompts import AS_SENT, TemplateRenderer
from prefixaudit.templates import check_templates, load_source
from prefixaudit.templates.checking import ask_all
from prefixaudit.templates.conversations import ANSWERS, THOUGHTS
from prefixaudit.templates.probing import Prober
from prefixaudit.templates.rules import TEMPLATE_RULES
from tests.templates.rendering import SAMPLE_MODEL, STABLE, answer, checked, rules

# A change of STABLE, and the rules that it breaks (beside those of STABLE, which breaks none).
FAULTS = {
    "clock-each-second": ("{{- bos_token }}", "{{- bos_token ~ strftime_now('%H:%M:%S') }}"),
    "clock-each-day": ("{{- bos_token }}", "{{- bos_token ~ strftime_now('%d %b %Y') }}"),
    "random": ("{{- bos_token }}", "{{- bos_token ~ (['a', 'b'] | random) }}"),
    "double-bos": ("{{- bos_token }}", "{{- bos_token ~ '<s>' }}"),
    "generation-tail": ("{{ '<|assistant|>' }}", "{{ '<|assistant|><think>\n' }}"),
    "prints-none": (
        "{%- for part in message.content or [] %}",
        "{%- if message.content is none %}{{ message.content }}{% endif %}"
        "{%- for part in message.content or [] %}",
    ),
    "drops-developer": (
        "{%- for message in messages %}",
        "{%- for message in messages if message.role != 'developer' %}",
    ),
    "drops-message": (
        "{%- for message in messages %}",
        "{%- for message in messages if message.role != 'tool' %}",
    ),
    "ignores-tools": ("{%- if tools %}", "{%- if false %}"),
    "changes-answers": (
        "{%- if message.content is string %}{{ message.content }}",
        "{%- if message.content is string %}{{ message.content | trim }}",
    ),
    "drops-reasoning": (
        "{%- if message.reasoning_content %}",
        "{%- if message.reasoning_content and 'user' not in "
        "messages[loop.index:] | map(attribute='role') | list %}",
    ),
    "rewrites-history": (
        "{{- '<|end|>' }}\n{%- endfor %}",
        "{%- if loop.first and messages | length > 2 %}{{ '!' }}{% endif %}"
        "{{- '<|end|>' }}\n{%- endfor %}",
    ),
    "loses-more-each-turn": (
        "{%- if message.content is string %}{{ message.content }}",
        "{%- if message.content is string %}{{ messages | length if loop.index0 == 1 }}"
        "{{ message.content }}",
    ),
    "thinking-changes-start": (
        "{{- bos_token }}",
        "{{- bos_token ~ ('/think' if enable_thinking else '') }}",
    ),
    "moves-fixed-text": (
        "{%- if add_generation_prompt %}",
        "{{- '<|note|>Answer in the language of the question, and never in more than a line.' }}"
        "{%- if add_generation_prompt %}",
    ),
    "needs-forbidden": (
        "{%- for call in",
        "{%- set ids = [] %}{% if message.tool_calls %}{% set _ = ids.append(1) %}{% endif %}"
        "{%- for call in",
    ),
    "fails": ("{{- '<|end|>' }}", "{{- '<|end|>' ~ (1 / (0 if tools else 1)) }}"),
}


def test_stable_template_has_no_finding(tmp_path: Path) -> None:
    report = checked(tmp_path, STABLE)

    assert not rules(report)
    assert not report.incomplete
    assert {item.verdict for item in report.answers if item.group.startswith("is each")} == {"yes"}


@pytest.mark.parametrize("rule", FAULTS)
def test_fault_is_found(tmp_path: Path, rule: str) -> None:
    old, new = FAULTS[rule]
    assert old in STABLE

    assert rule in rules(checked(tmp_path, STABLE.replace(old, new)))


@pytest.mark.parametrize(
    "rule",
    ["clock-each-second", "clock-each-day", "drops-developer", "generation-tail", "ignores-tools"],
)
def test_nothing_else_is_found(tmp_path: Path, rule: str) -> None:
    assert rules(checked(tmp_path, STABLE.replace(*FAULTS[rule]))) == {rule}


@pytest.mark.parametrize(
    ("layout", "period"),
    [
        ("%S", "each second"),
        ("%H:%M", "each minute"),
        ("%H", "each hour"),
        ("%d", "each day"),
        ("%B", "each month"),
        ("%Y", "each year"),
    ],
)
def test_period_of_a_clock(tmp_path: Path, layout: str, period: str) -> None:
    report = checked(tmp_path, f"{{{{ strftime_now('{layout}') }}}}{STABLE}")

    assert answer(report, "clock").about == f"the prompt changes {period}"


def test_clock_for_chats_without_system_message_alone(tmp_path: Path) -> None:
    clock = "{%- if messages[0].role != 'system' %}{{ strftime_now('%d') }}{% endif %}"

    found = answer(checked(tmp_path, clock + STABLE), "clock")

    assert found.about == "the prompt changes each day where the client sends no system message"


def test_null_content_is_no_fault_where_the_server_replaces_it(tmp_path: Path) -> None:
    template = STABLE.replace(*FAULTS["prints-none"])

    report = checked(tmp_path, template, server="vllm")

    assert "prints-none" not in rules(report)
    assert answer(report, "null-content").about == "null is printed as the word None"


def test_spelling_of_arguments_is_lost_where_the_server_parses_them(tmp_path: Path) -> None:
    as_sent = answer(checked(tmp_path, STABLE), "argument-spelling")
    parsed = answer(checked(tmp_path, STABLE, server="vllm"), "argument-spelling")

    assert (as_sent.verdict, parsed.verdict) == ("yes", "no")


def test_lengths_are_tokens_where_there_is_a_tokenizer(tmp_path: Path) -> None:
    """The sample model's tokenizer knows `<|assistant|>` as one token, and no think tag."""
    tail = STABLE.replace("{{ '<|assistant|>' }}", "{{ '<|assistant|><|note|>' }}")

    characters = answer(checked(tmp_path, tail), "plain-turns")
    tokens = answer(checked(tmp_path, tail, model=SAMPLE_MODEL), "plain-turns")

    assert characters.num_lost == len("<|note|>")
    assert tokens.num_lost is not None
    assert 0 < tokens.num_lost < len("<|note|>")


def test_begin_token_of_template_and_tokenizer(tmp_path: Path) -> None:
    """Case B011: the tokenizer adds the begin token that the template has written already."""
    [folder] = (SAMPLE_MODEL.parents[2] / "tests" / "data" / "cases").glob("B011-*")

    report = check_templates(load_source(folder, None))

    assert answer(report, "begin-tokens").verdict == "no"
    assert "and-tokenizer-begin" in rules(report)


def test_hints_name_the_line(tmp_path: Path) -> None:
    report = checked(tmp_path, "{{ bos_token }}\n{{ messages[-1].content }}\n")

    assert [(hint.kind, hint.line) for hint in report.hints] == [("last-message", 2)]


def test_variables_are_those_that_callers_may_set(tmp_path: Path) -> None:
    report = checked(tmp_path, "{% set own = 1 %}{{ own }}{{ enable_thinking }}" + STABLE)

    assert report.variables == ("enable_thinking",)


def test_template_that_refuses_system_messages_is_asked_without_one(tmp_path: Path) -> None:
    refusal = "{%- if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"

    report = checked(tmp_path, refusal + STABLE)

    assert answer(report, "system-role").verdict == "refused"
    assert answer(report, "plain-turns").verdict == "yes"
    assert not rules(report)


def test_template_that_renders_nothing_is_incomplete(tmp_path: Path) -> None:
    report = checked(tmp_path, "{{ raise_exception('no') }}")

    assert report.incomplete is not None


def test_endless_template_is_told_as_failing(tmp_path: Path) -> None:
    report = checked(tmp_path, "{{ 'x' * 10 ** 12 }}")

    assert rules(report) == {"fails"}


def test_endless_loop_is_given_up_soon(tmp_path: Path) -> None:
    """Three renderings that are stopped, and no more."""
    path = tmp_path / "template.jinja"
    path.write_text(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    )
    source = load_source(path, None)
    started_s = time.process_time()

    checked = ask_all(Prober(source, AS_SENT, renderer=TemplateRenderer(time_limit_s=0.1)))

    assert {item.answer.verdict for item in checked.seen} == {"refused"}
    assert time.process_time() - started_s < 1.5


def test_template_for_tools_is_the_one_that_servers_take(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(
        "{{ raise_exception('not for tools') if tools }}" + STABLE
    )
    folder = tmp_path / "additional_chat_templates"
    folder.mkdir()
    (folder / "tool_use.jinja").write_text(STABLE)

    report = check_templates(load_source(tmp_path, None))

    assert not rules(report)
    assert report.paths == (
        str(folder / "tool_use.jinja"),
        str(tmp_path / "chat_template.jinja"),
    )


def test_thought_that_goes_with_the_next_turn(tmp_path: Path) -> None:
    """`<t>`, the thought, `</t>` and the answer stood behind each other: all of it is lost."""
    report = checked(tmp_path, STABLE.replace(*FAULTS["drops-reasoning"]))

    found = answer(report, "reasoning-stays")
    assert found.num_lost == len(f"<t>{THOUGHTS[0]}</t>{ANSWERS[0]}")
    assert answer(checked(tmp_path, STABLE), "reasoning-stays").verdict == "yes"


def test_invalid_template_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"template\.jinja: the chat template, line 2"):
        checked(tmp_path, "{{ 1 }}\n{% for %}")


def test_folder_without_template_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no chat template"):
        load_source(tmp_path, None)


def test_unknown_server_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'vllm'"):
        checked(tmp_path, STABLE, server="vlm")


def test_every_rule_says_what_to_do() -> None:
    for rule in TEMPLATE_RULES.values():
        assert rule.remediation.endswith(".")
        assert rule.rationale.endswith(".")
