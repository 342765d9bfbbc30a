"""How the messages and tools of a later chat come from those of an earlier one."""

from __future__ import annotations

from typing import Any

import pytest

from prefixaudit.why.structure import changed_field, compare_messages, compare_tools


def _messages(names: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": name} for name in names]


@pytest.mark.parametrize(
    ("earlier", "later", "shape", "first", "num_dropped"),
    [
        ("abc", "abc", "equal", 3, 0),
        ("abc", "abcde", "continues", 3, 0),
        ("abcde", "abc", "goes-back", 3, 0),
        ("sabcd", "sbcde", "window", 1, 1),
        ("sabcdef", "scdefgh", "window", 1, 2),
        ("sabc", "sxabcd", "inserted", 1, 0),
        ("sabcd", "saxcde", "edited", 2, 0),
        ("sab", "sax", "replaced-end", 2, 0),
        ("sab", "saxyz", "replaced-end", 2, 0),
        ("sabc", "sxyz", "parted", 1, 0),
        ("sabcdef", "sx", "parted", 1, 0),
    ],
)
def test_shape_of_a_change(
    earlier: str, later: str, shape: str, first: int, num_dropped: int
) -> None:
    change = compare_messages(_messages(earlier), _messages(later))

    assert (change.shape, change.first, change.num_dropped) == (shape, first, num_dropped)


def _tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


def test_tools() -> None:
    a, b, c = _tool("a", x=1, y=2), _tool("b"), _tool("c")
    turned = {"function": {"name": "a", "y": 2, "x": 1}, "type": "function"}

    assert compare_tools([a, b], [a, b]) == ("same", 0)
    assert compare_tools(None, []) == ("same", 0)
    assert compare_tools([a, b, c], [a, c, b]) == ("order", 1)
    assert compare_tools([a, b], [turned, b]) == ("key-order", 0)
    assert compare_tools([a, b], [a, b, c]) == ("changed", 2)
    assert compare_tools([a, b], [a, _tool("b", z=1)]) == ("changed", 1)


def test_first_field_that_changed() -> None:
    def call(arguments: Any, number: str = "1") -> dict[str, Any]:
        function = {"name": "f", "arguments": arguments}
        return {"role": "assistant", "tool_calls": [{"id": number, "function": function}]}

    image, other = ({"type": "image_url", "image_url": {"url": url}} for url in "ab")
    text = {"type": "text", "text": "t"}

    assert changed_field({"content": None}, {"content": ""}) == ("content", "null")
    assert changed_field({"content": "a"}, {"content": "b"}) == ("content", "text")
    assert changed_field({"reasoning_content": "r", "content": "a"}, {"content": "a"}) == (
        "reasoning_content",
        "reasoning",
    )
    assert changed_field(call('{"a": 1, "b": 2}'), call('{"b":2,"a":1}')) == (
        "tool_calls[0].function.arguments",
        "arguments",
    )
    assert changed_field(call('{"a": 1}'), call('{"a": 2}')) == (
        "tool_calls[0].function.arguments",
        "text",
    )
    assert changed_field(call("{}"), call("{}", "2")) == ("tool_calls[0].id", "id")
    assert changed_field({"content": [text, image]}, {"content": [text, other]}) == (
        "content[1]",
        "media",
    )
    assert changed_field({"content": [text, image]}, {"content": [text]}) == ("content[1]", "media")
    assert changed_field({"content": "a"}, {"content": "a"}) is None
