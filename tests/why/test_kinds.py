"""Every kind of difference, each in a log that has nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.why.kinds import KINDS
from tests.why.logs import (
    SYSTEM,
    TEMPLATE,
    assistant,
    body,
    case_folder,
    hits,
    kinds,
    only_cause,
    report_of,
    system,
    user,
    why_of,
    write_log,
)

TURNS = [
    user("Which berth for the Marit, and when does the pilot come aboard?"),
    assistant("Berth 4 at 11:20, with the pilot Osei aboard from the outer buoy."),
    user("And what about the tugs that the convoy asked for last night?"),
    assistant("Two tugs stand by at the inner mole, with line handlers ordered."),
    user("Is there enough water at quay seven for eleven metres of draught?"),
]


def _systems(tmp_path: Path, *texts: str) -> Path:
    return write_log(tmp_path, [body([system(text), TURNS[0]]) for text in texts])


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("clock", "Now: 2026-03-02T10:15:07Z.", "Now: 2026-03-02T11:20:31Z."),
        ("clock", "Today is 2 March 2026.", "Today is 3 March 2026."),
        ("random-id", "Session 7f3a9c2e1b44.", "Session d0e811c2a97b."),
        (
            "random-id",
            "Trace 5b1f6a34-9c57-4c61-8d0e-0f6a1b2c3d4e.",
            "Trace c7d3e1f0-1234-4abc-9def-0123456789ab.",
        ),
        ("counter", "This is turn 12 of the talk.", "This is turn 13 of the talk."),
        ("path", "Work in /home/ada/plans/north now.", "Work in /home/bob/plans/north now."),
        (
            "git-status",
            "gitStatus: on branch main, changed:\n M berths.py\n",
            "gitStatus: on branch main, changed:\n M tides.py\n",
        ),
        ("whitespace", "Be brief.  Be kind to all.", "Be brief.\nBe kind to all."),
    ],
)
def test_value_in_the_system_prompt(tmp_path: Path, kind: str, first: str, second: str) -> None:
    log = _systems(tmp_path, f"{first} {SYSTEM}", f"{second} {SYSTEM}")

    cause = only_cause(report_of(log))

    assert (cause.kind, cause.place, cause.positions) == (kind, "messages[0].content", (1,))


@pytest.mark.parametrize(
    ("first", "second", "period_s"),
    [
        ("10:15:07", "10:15:41", 1),
        ("10:15", "10:16", 60),
        ("10 AM", "11 AM", 3600),
        ("2026-03-02", "2026-03-03", 86400),
        ("10:15:07.123", "10:15:07.456", 0.001),
    ],
)
def test_period_of_a_clock(tmp_path: Path, first: str, second: str, period_s: float) -> None:
    log = _systems(tmp_path, f"It is {first} here. {SYSTEM}", f"It is {second} here. {SYSTEM}")

    assert only_cause(report_of(log)).period_s == period_s


def test_value_moved_behind_is_reused(tmp_path: Path) -> None:
    texts = [f"Session {number}f3a9c2e1b44. {SYSTEM}" for number in range(3)]
    log = _systems(tmp_path, *texts)

    cause = only_cause(report_of(log, what_if=True))

    # The begin token, the header, the system text without its first sentence, two markers, and
    # what the moved sentences begin with.
    shared = 2 + len(SYSTEM) + 2 + len("Session ")
    assert cause.what_if is not None
    assert cause.what_if.hits.tolist() == [0, shared // 16 * 16, shared // 16 * 16]


def _tool(name: str, **parameters: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": f"What {name} does, told at some length",
            "parameters": {"type": "object", "properties": parameters},
        },
    }


def _with_tools(tmp_path: Path, *tools: list[dict[str, Any]]) -> Path:
    return write_log(tmp_path, [body([system(SYSTEM), TURNS[0]], tools=list(t)) for t in tools])


def test_key_order_of_a_schema(tmp_path: Path) -> None:
    one = _tool("berth", quay={"type": "integer"}, length={"type": "number"})
    other = json.loads(json.dumps(one))
    properties = other["function"]["parameters"]["properties"]
    other["function"]["parameters"]["properties"] = dict(reversed(properties.items()))
    log = _with_tools(tmp_path, [one], [other], [one])

    cause = only_cause(report_of(log, template=TEMPLATE, what_if=True))

    assert cause.kind == "schema-key-order"
    assert cause.what_if is not None
    assert cause.what_if.hits[1] == cause.what_if.hits[2]


def test_another_tool(tmp_path: Path) -> None:
    tools = [_tool("berth"), _tool("tide"), _tool("pilot")]
    log = _with_tools(tmp_path, tools, [tools[0], _tool("weather"), *tools[1:]])

    cause = only_cause(report_of(log, template=TEMPLATE))

    assert cause.kind == "tools-changed"
    assert cause.details["first_tool_index"] == 1
    assert (cause.details["num_tools_before"], cause.details["num_tools_after"]) == (3, 4)


def test_tool_order_is_no_change_of_tools(tmp_path: Path) -> None:
    tools = [_tool("berth"), _tool("tide"), _tool("pilot")]
    log = _with_tools(tmp_path, tools, tools[::-1])

    assert kinds(report_of(log, template=TEMPLATE)) == ["tool-order"]


def test_edited_answer_in_the_history(tmp_path: Path) -> None:
    shorter = [TURNS[0], assistant("Berth 4."), *TURNS[2:]]
    log = write_log(
        tmp_path, [body([system(SYSTEM), *TURNS[:3]]), body([system(SYSTEM), *shorter])]
    )

    cause = only_cause(report_of(log))

    assert (cause.kind, cause.place) == ("message-edited", "messages[2].content")


def test_message_put_between_earlier_ones(tmp_path: Path) -> None:
    note = user("A note on the weather that somebody adds in front of everything else.")
    log = write_log(
        tmp_path, [body([system(SYSTEM), *TURNS[:3]]), body([system(SYSTEM), note, *TURNS])]
    )

    cause = only_cause(report_of(log))

    assert (cause.kind, cause.place) == ("messages-inserted", "messages[1]")


def test_reasoning_that_the_client_leaves_out(tmp_path: Path) -> None:
    template = TEMPLATE.replace("(m.content or '')", "(m.reasoning_content or '') ~ m.content")
    thought = {**TURNS[1], "reasoning_content": "Let me look at the tide table of this evening."}
    log = write_log(
        tmp_path,
        [
            body([system(SYSTEM), TURNS[0], thought, TURNS[2]]),
            body([system(SYSTEM), *TURNS]),
        ],
    )

    cause = only_cause(report_of(log, template=template, what_if=True))

    assert (cause.kind, cause.source) == ("reasoning-dropped", "client")
    assert cause.place == "messages[2].reasoning_content"
    assert cause.what_if is not None
    assert cause.what_if.hits[1] > hits(report_of(log, template=template))[1]


def test_reasoning_that_the_template_drops_is_a_cost(tmp_path: Path) -> None:
    """Only turns behind the last user message keep their reasoning, as Qwen3's template does it."""
    template = (
        "{{ bos_token }}{% set ns = namespace(last=0) %}{% for m in messages %}"
        "{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
        "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' }}"
        "{% if m.reasoning_content and loop.index0 > ns.last %}"
        "{{ '<think>' ~ m.reasoning_content ~ '</think>' }}{% endif %}"
        "{{ m.content ~ '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    call = {**TURNS[1], "reasoning_content": "First look at the tide table of this evening."}
    result = {"role": "tool", "content": "High water at 14:05, low water at 20:10, swell slight."}
    loop = [system(SYSTEM), TURNS[0], call, result]
    log = write_log(tmp_path, [body(loop), body([*loop, assistant("Berth 4."), TURNS[2]])])

    cause = only_cause(report_of(log, template=template))

    assert (cause.kind, cause.source) == ("reasoning-dropped", "chat template")
    assert cause.intent == "cost"
    assert cause.num_lost_tokens > 0


def test_history_replaced_by_a_summary(tmp_path: Path) -> None:
    summary = user("In short: the Marit lies at berth 4, two tugs stand by at the inner mole.")
    log = write_log(
        tmp_path,
        [
            body([system(SYSTEM), *TURNS, assistant("Yes."), user("Good.")]),
            body([system(SYSTEM), summary, TURNS[2], user("So?"), TURNS[4]]),
        ],
    )

    cause = only_cause(report_of(log))

    assert (cause.kind, cause.intent) == ("history-compacted", "cost")


def test_new_question_is_not_unstable(tmp_path: Path) -> None:
    log = write_log(
        tmp_path,
        [
            body([system(SYSTEM), user("What is the tide at 10:15 at quay 7?")]),
            body([system(SYSTEM), user("What is the tide at 11:20 at quay 8?")]),
            body([system(SYSTEM), user("What is the tide at 12:25 at quay 9?")]),
        ],
    )

    why = why_of(report_of(log))

    assert why.causes == ()
    assert why.relations["shares a beginning, then is new"] == 2


def test_growing_conversation_is_not_unstable(tmp_path: Path) -> None:
    log = write_log(tmp_path, [body([system(SYSTEM), *TURNS[:length]]) for length in (1, 3, 5)])

    why = why_of(report_of(log))

    assert why.causes == ()
    assert why.relations == {"extends an earlier prompt": 2, "first of its kind": 1}


def test_answer_in_other_tokens_than_were_generated(tmp_path: Path) -> None:
    """The answer's ids spell its text in other tokens: bytes where the tokenizer has a special."""
    answer = "Berth 4 at 11:20. <|end|> is what I was told to say, and so I say it."
    log = write_log(
        tmp_path,
        [
            {"model": "m", "prompt": "Which berth for the Marit?"},
            {"model": "m", "prompt": f"Which berth for the Marit?{answer} And the tugs then?"},
        ],
        output_token_ids=[_byte_ids(answer), []],
    )

    report = report_of(log)

    assert kinds(report) == ["tokenizer-round-trip"]


def _byte_ids(text: str) -> list[int]:
    """Return the ids of a text byte by byte, special tokens spelled out."""
    tokenizer = json.loads((case_folder("B001") / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    return [vocabulary[_visible(byte)] for byte in text.encode()]


def _visible(byte: int) -> str:
    # GPT-2's byte alphabet: printable ASCII as it is, the space moved to U+0120.
    return "\u0120" if byte == 32 else chr(byte)


def test_raw_text_with_a_value_in_front(tmp_path: Path) -> None:
    """A passage that every prompt has, behind a question: what changes should stand behind."""
    passage = SYSTEM * 2
    prompts = [f"Question: {question}\n\n{passage}" for question in ("Berths?", "Any more tugs?")]
    log = write_log(tmp_path, [{"model": "m", "prompt": prompt} for prompt in prompts])

    cause = only_cause(report_of(log))

    assert cause.kind in ("text-replaced", "same-text-elsewhere")
    assert cause.num_lost_tokens >= len(passage)


def test_every_kind_says_what_to_change_in_one_sentence() -> None:
    for name, kind in KINDS.items():
        text = kind.advice.format(place="the field")
        assert text[0].isupper(), name
        assert ". " not in text, name
        assert not text.endswith("."), name


def test_arguments_that_the_server_prints_otherwise(tmp_path: Path) -> None:
    """The client kept the model's text; vLLM's server parses it, and the template dumps it."""
    template = TEMPLATE.replace(
        "(m.content or '')",
        "(m.content or '') ~ (m.tool_calls[0].function.arguments | tojson if m.tool_calls else '')",
    )
    written = '{"vessel":"Marit","quay":7,"draught":9.5,"note":"two tugs stand by"}'
    call = {"id": "1", "type": "function", "function": {"name": "book", "arguments": written}}
    first = [system(SYSTEM), TURNS[0]]
    log = write_log(
        tmp_path,
        [
            body(first),
            body([*first, {"role": "assistant", "content": None, "tool_calls": [call]}, TURNS[2]]),
        ],
        output_token_ids=[_byte_ids(written), []],
    )

    cause = only_cause(report_of(log, template=template, engine="vllm@0.33.0"))

    assert (cause.kind, cause.intent) == ("arguments-reprinted", "cost")
    assert cause.place == "messages[2].tool_calls[0].function.arguments"


def test_prompt_without_a_begin_token(tmp_path: Path) -> None:
    text = f"<|system|>{SYSTEM}<|end|><|user|>Free berths?<|end|><|assistant|>"
    log = write_log(
        tmp_path,
        [
            body([system(SYSTEM), user("Free berths?")]),
            {"model": "m", "prompt": text, "add_special_tokens": False},
        ],
    )

    assert only_cause(report_of(log)).kind == "bos-differs"


def test_tools_that_wander_though_their_names_stand_in_the_history(tmp_path: Path) -> None:
    template = (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' and loop.last %}"
        "{{ '<|tools|>' ~ (tools | tojson) ~ '<|/tools|>' }}{% endif %}"
        "{{ '<|' ~ m.role ~ '|>' ~ m.content ~ '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    tools = [_tool("berth"), _tool("tide")]
    turns = [user('Call "berth" and then "tide" for the Marit.'), *TURNS[1:]]
    log = write_log(
        tmp_path,
        [body([system(SYSTEM), *turns[:length]], tools=tools) for length in (1, 3, 5)],
    )

    assert kinds(report_of(log, template=template)) == ["tools-moved"]


def test_a_phrase_in_passing_is_not_unstable(tmp_path: Path) -> None:
    phrase = "with line handlers ordered for the quay"
    questions = [
        f"{start} {phrase}, and {end}"
        for start, end in (
            ("Tell me of the Marit", "what the swell is like at the outer buoy tonight please"),
            ("Is the Osei at berth 4", "has any pilot boarded her since the tide turned at noon"),
        )
    ]
    log = write_log(tmp_path, [body([system(SYSTEM), user(text)]) for text in questions])

    assert why_of(report_of(log)).causes == ()


def test_instruction_that_is_sent_once(tmp_path: Path) -> None:
    """The client ends each prompt in an instruction that it doesn't keep."""
    instruction = user(f"Remember: {SYSTEM}")
    log = write_log(
        tmp_path,
        [
            body([system(SYSTEM), *TURNS[:1], instruction]),
            body([system(SYSTEM), *TURNS[:3], instruction]),
        ],
    )

    cause = only_cause(report_of(log))

    # The instruction stands behind a new turn now: the turn was put in front of it.
    assert (cause.kind, cause.intent) == ("messages-inserted", "fault")
