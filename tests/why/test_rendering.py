"""Where texts part, and the field of the request that a character comes from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prefixaudit.core.request import ChatMessages, Request, Source
from prefixaudit.why.rendering import common_text_length, field_at, fields_of


@given(st.text("ab", max_size=40), st.text("ab", max_size=40), st.integers(0, 3_000))
def test_common_length_of_texts(first: str, second: str, shared: int) -> None:
    first, second = "x" * shared + first, "x" * shared + second
    length = 0
    while length < min(len(first), len(second)) and first[length] == second[length]:
        length += 1

    assert common_text_length(first, second) == length


def _request(*messages: dict[str, object], endpoint: str = "/v1/chat/completions") -> Request:
    return Request(
        request_id="r",
        source=Source("log", 1),
        prompt=ChatMessages(messages=list(messages)),
        endpoint=endpoint,
    )


def test_fields_are_found_in_order() -> None:
    request = _request(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "brief"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "f", "arguments": '{"a":1}'}}],
        },
    )
    text = '<s>Be brief.</s><u>brief</u><a>f({"a": 1})</a>'

    spans = fields_of(request, text)

    assert [(span.path, text[span.start : span.end]) for span in spans] == [
        ("messages[0].content", "Be brief."),
        ("messages[1].content", "brief"),
        ("messages[2].tool_calls[0].function.name", "f"),
        ("messages[2].tool_calls[0].function.arguments", '{"a": 1}'),
    ]


def test_a_character_right_behind_a_field_is_the_field_s_end() -> None:
    request = _request({"role": "user", "content": "abc"})
    spans = fields_of(request, "<u>abc</u>")

    inside, end = field_at(spans, 4), field_at(spans, 6)
    assert inside is not None
    assert end is not None
    assert inside.path == end.path == "messages[0].content"
    assert field_at(spans, 2) is None
    assert field_at(spans, 7) is None


def test_the_messages_api_keeps_system_apart() -> None:
    request = _request(
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U"},
        endpoint="/v1/messages",
    )

    assert [span.path for span in fields_of(request, "<s>S<u>U")] == [
        "system",
        "messages[0].content",
    ]
