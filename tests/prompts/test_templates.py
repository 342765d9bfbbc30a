"""Templates: the renderer is transformers', the clock and the limits are ours."""

from __future__ import annotations

import datetime
import threading
import time
import zoneinfo
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.prompts import Refusal, TemplateRenderer
from prefixaudit.prompts.watchdog import OutOfTime, time_limit

SECRET = "the-secret-text"
CHAT = [{"role": "user", "content": SECRET}]


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]] = CHAT,
    renderer: TemplateRenderer | None = None,
    **changed: Any,
) -> str:
    options: dict[str, Any] = {
        "tools": None,
        "documents": None,
        "add_generation_prompt": True,
        "continue_final_message": False,
        "arrival_s": 1772409600.0,  # 2026-03-02 00:00:00 UTC
        "variables": {},
    }
    renderer = renderer or TemplateRenderer(time_limit_s=0.3, max_characters=1 << 20)
    return renderer.render(template, messages, **{**options, **changed})


FORBIDDEN = {
    "template-timeout": [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    ],
    "template-too-large": [
        "{% for a in range(99999) %}{% for b in range(99999) %}xxxx{% endfor %}{% endfor %}",
        "{% set n = namespace(x='a')%}{%for a in range(60)%}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x='a')%}{%for a in range(60)%}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x=[1])%}{%for a in range(60)%}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x=9) %}{% for a in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "{{ 'x' * 10 ** 12 }}",
        "{{ [0] * 10 ** 12 }}",
        "{{ 9 ** 999999999 }}",
        "{{ '%099999999d' % 1 }}",
        "{{ '%*d' % (99999999, 1) }}",
        "{{ '%99999999d' | format(1) }}",
        "{{ '{:>99999999}'.format(1) }}",
        "{{ messages[0].content.ljust(999999999) }}",
        "{{ messages[0].content | center(999999999) }}",
        "{{ messages | tojson(indent=999999999) }}",
    ],
    "template-forbidden": [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
    ],
    "template-random": ["{{ messages | random }}", "{{ lipsum() }}"],
    "template-refused": ["{{ raise_exception('not ' ~ messages[0].content) }}"],
    "template-error": [
        "{{ messages[0].missing.more }}",
        "{{ messages[0].content + 1 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ range(10 ** 9) }}",
        "{% for m in messages %}",
    ],
}


@pytest.mark.parametrize(
    ("kind", "template"), [(kind, each) for kind, many in FORBIDDEN.items() for each in many]
)
def test_template_that_misbehaves_is_refused_without_prompt_text(kind: str, template: str) -> None:
    started = time.perf_counter()
    with pytest.raises(Refusal) as caught:
        render("\n\n" + template)

    assert caught.value.kind == kind
    assert SECRET not in caught.value.reason
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    "template",
    [
        "one\n{{ messages[0].content }}\n{{ messages[0].missing.more }}",
        "one\ntwo\n{{ raise_exception('x') }}",
        "one\ntwo\n{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "one\ntwo\n{{ ''.__class__ }}{{ ''.__class__.__mro__ }}",
        "one\ntwo\n{% for x %}",
        "one\ntwo\n{{ strftime_now('%Y') }}",
    ],
)
def test_refusal_names_the_line_of_the_template(template: str) -> None:
    with pytest.raises(Refusal, match="line 3"):
        render(template, arrival_s=None)


def test_time_limit_holds_in_other_threads_too() -> None:
    kinds = []

    def work() -> None:
        try:
            render(FORBIDDEN["template-timeout"][0])
        except Refusal as refusal:
            kinds.append(refusal.kind)
        kinds.append(render("fine"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert kinds == ["template-timeout", "fine"]


def test_a_template_that_runs_out_of_time_again_and_again_is_not_tried_for_ever() -> None:
    renderer = TemplateRenderer(time_limit_s=0.1)
    loops = "{% if messages[0].content == 'long' %}" + FORBIDDEN["template-timeout"][0]
    loops += "{% endif %}fine"

    def shown(content: str, template: str = loops) -> str:
        try:
            return render(template, [{"role": "user", "content": content}], renderer)
        except Refusal as refusal:
            return f"{refusal.kind}: {refusal.reason}"

    out_of_time = "template-timeout: the chat template, line 1, runs longer than 0.1 s"
    contents = ["long", "long", "short", "long", "long", "long"]
    assert [shown(content) for content in contents] == [
        *(out_of_time, out_of_time, "fine"),
        *(out_of_time, out_of_time, out_of_time),
    ]
    given_up = f"{out_of_time}, 3 times: it isn't tried again"
    assert [shown("long"), shown("short")] == [given_up] * 2
    assert shown("short", "{# another #}" + loops) == "fine"


def test_time_limit_leaves_no_timer_behind() -> None:
    with time_limit(0.05):
        pass
    stop = time.process_time() + 0.1
    while time.process_time() < stop:  # would raise here
        pass

    with pytest.raises(OutOfTime), time_limit(0.05):
        _spin()


def _spin() -> None:
    while True:
        pass


def test_clock_shows_the_arrival_in_the_servers_zone() -> None:
    template = "{{ strftime_now('%Y-%m-%d %H:%M') }}"
    zurich = TemplateRenderer(time_zone=zoneinfo.ZoneInfo("Europe/Zurich"))
    new_york = TemplateRenderer(time_zone=datetime.timezone(datetime.timedelta(hours=-5)))

    assert render(template) == "2026-03-02 00:00"
    assert render(template, renderer=zurich) == "2026-03-02 01:00"
    assert render(template, renderer=new_york) == "2026-03-01 19:00"


def test_unknown_arrival_is_refused_only_where_the_clock_is_asked() -> None:
    template = "{% if messages[0].role == 'system' %}{{ strftime_now('%d') }}{% endif %}hello"

    assert render(template, arrival_s=None) == "hello"
    with pytest.raises(Refusal) as caught:
        render(template, [{"role": "system", "content": ""}], arrival_s=None)
    assert caught.value.kind == "unknown-clock"


def test_other_users_of_transformers_keep_its_clock() -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    template = "{{ strftime_now('%Y') }}"
    assert render(template, arrival_s=0.0) == "1970"
    (text,), _ = render_jinja_template([CHAT], chat_template=template)

    assert text != "1970"


def test_continued_message_ends_where_it_ends() -> None:
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    chat = [*CHAT, {"role": "assistant", "content": "It is "}]

    text = render(template, chat, continue_final_message=True, add_generation_prompt=False)

    assert text == f"<user>{SECRET}</s><assistant>It is "
    assert chat[1]["content"] == "It is "


def test_continued_message_that_the_template_drops_is_refused_without_its_text() -> None:
    with pytest.raises(Refusal) as caught:
        render("{# content #}x", continue_final_message=True, add_generation_prompt=False)

    assert SECRET not in caught.value.reason


def test_facts_name_the_clock_chance_and_parts() -> None:
    renderer = TemplateRenderer()
    clock = renderer.facts("{% if strftime_now is defined %}{{ strftime_now('%d') }}{% endif %}")
    parts = renderer.facts(
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}"
        "{% else %}{% for part in m['content'] %}{{ part.text }}{% endfor %}{% endif %}{% endfor %}"
    )
    plain = renderer.facts("{% for m in messages %}{{ m.content | trim }}{% endfor %}")

    assert clock.reads_clock
    assert not clock.uses_random
    assert parts.reads_parts
    assert not plain.reads_parts
    assert not plain.reads_clock


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
TEMPLATE = (
    "{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}"
    "{{ '<' + m.role + '>' }}{{ m.content }}{{ m.reasoning_content }}{{ m.thinking }}"
    "{% for c in m.tool_calls or [] %}{{ c | tojson(indent=2) }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}{{ extra }}{{ documents }}"
)


@settings(max_examples=150, deadline=None)
@given(
    messages=st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant"]), "content": json_values},
            optional={"reasoning": json_values, "tool_calls": st.lists(json_values, max_size=2)},
        ),
        min_size=1,
        max_size=4,
    ),
    tools=st.none() | st.lists(st.dictionaries(st.text(max_size=4), json_values), max_size=2),
    extra=json_values,
)
def test_rendering_is_that_of_transformers(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, extra: Any
) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    (expected,), _ = render_jinja_template(
        [messages],
        tools=tools,
        chat_template=TEMPLATE,
        add_generation_prompt=True,
        bos_token="<s>",
        extra=extra,
    )
    text = render(TEMPLATE, messages, tools=tools, variables={"bos_token": "<s>", "extra": extra})

    assert text == expected
