"""What the syntax tree of a template shows: kinds of uses, their lines, and variables."""

from __future__ import annotations

import pytest

from prefixaudit.prompts import Refusal, TemplateRenderer

USES = {
    "{{ strftime_now('%d') }}": ("clock", "strftime_now"),
    "{{ messages | random }}": ("random", "| random"),
    "{{ lipsum() }}": ("random", "lipsum"),
    "{% for m in messages %}{{ loop.last }}{% endfor %}": ("loop-end", "loop.last"),
    "{% for m in messages %}{{ loop.nextitem }}{% endfor %}": ("loop-end", "loop.nextitem"),
    "{{ messages[-1].content }}": ("last-message", "messages[-1]"),
    "{{ (messages | last).content }}": ("last-message", "messages | last"),
    "{% for m in messages[::-1] %}{{ m.role }}{% endfor %}": ("backwards", "messages[::-1]"),
    "{% for m in messages | reverse %}{{ m }}{% endfor %}": ("backwards", "messages | reverse"),
    "{{ messages[0].content | trim }}": ("trimmed-content", "| trim"),
    "{{ messages[0]['content'].strip() }}": ("trimmed-content", ".strip()"),
    "{{ messages[0].content.split('</think>')[-1] }}": ("cut-content", ".split()"),
    "{% set content = messages[0].content %}{{ content[4:] }}": ("cut-content", "content[:]"),
    "{% set ids = [] %}{% set _ = ids.append(1) %}": ("forbidden", ".append()"),
}


@pytest.mark.parametrize("template", USES)
def test_use_is_found(template: str) -> None:
    uses = TemplateRenderer().syntax(f"\n{template}").uses

    assert [(use.kind, use.name, use.line) for use in uses] == [(*USES[template], 2)]


def test_namespace_that_is_set_while_looking_for_a_message() -> None:
    template = (
        "{% set ns = namespace(last=0) %}\n"
        "{% for m in messages %}\n{% set ns.last = loop.index0 %}\n{% endfor %}"
    )

    syntax = TemplateRenderer().syntax(template)

    assert syntax.lines("looked-for-ahead") == (3,)


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.role ~ m.content }}{% endfor %}",
        "{% for m in messages %}{{ loop.first }}{{ loop.index }}{% endfor %}",
        "{{ tools | last }}{{ tools[-1] }}{{ messages[0].content[0] }}{{ messages[1:] }}",
        "{{ tool_name.strip() }}{{ 'a,b'.split(',') }}",
    ],
)
def test_what_writes_each_message_by_itself_is_no_use(template: str) -> None:
    assert TemplateRenderer().syntax(template).uses == ()


def test_variables_are_those_that_the_template_neither_gets_nor_sets() -> None:
    template = (
        "{% if messages %}{% set own = 1 %}{% endif %}{{ own }}{{ tools }}{{ bos_token }}"
        "{% macro m(argument) %}{{ argument }}{% endmacro %}{{ m(1) }}{{ enable_thinking }}"
        "{{ raise_exception }}{{ date_string }}"
    )

    assert TemplateRenderer().syntax(template).variables == ("date_string", "enable_thinking")


def test_invalid_template_is_refused() -> None:
    with pytest.raises(Refusal, match="line 1"):
        TemplateRenderer().syntax("{% for %}")
