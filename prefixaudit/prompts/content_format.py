"""Whether a chat template takes a message's content as text or as parts: the servers' own guesses.

vLLM and SGLang read it off the template's syntax tree, and what they look for has grown. Each
guess is named after the release that it came with. A template that walks through parts in a way
that the server's guess doesn't see gets text all the same, so a better guess would be a wrong one.

    vllm-0.6.5     loops over `content` of what a loop over `messages` names (chat_utils.py)
    vllm-0.22      and over a variable called `content`, anywhere (renderers/hf.py)
    vllm-0.30      and over macro arguments that are given such content; within macros no others
    vllm-0.33      messages are followed through namespaces too
    sglang-0.4.7   loops over `message.content` (srt/jinja_template_utils.py)
    sglang-0.5.1   and over `msg.content` and `m.content`
    sglang-0.5.3   and every template in which image, audio, video or vision is written
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

Guess: TypeAlias = Literal[
    "vllm-0.6.5",
    "vllm-0.22",
    "vllm-0.30",
    "vllm-0.33",
    "sglang-0.4.7",
    "sglang-0.5.1",
    "sglang-0.5.3",
]
NEWEST_VLLM: Final[Guess] = "vllm-0.33"

_SGLANG_WORDS: Final = ("image", "audio", "video", "vision")


class _Unforeseen(Exception):  # noqa: N818 - the servers then take the template for a text one
    """The tree holds what the server's search stops at: it assigns to what isn't a name."""


def guesses_for_parts(tree: Any, source: str) -> frozenset[Guess]:
    """Return which guesses hand this template parts; the others hand it text."""
    found: set[Guess] = set()
    for guess in ("vllm-0.6.5", "vllm-0.22", "vllm-0.30", "vllm-0.33"):
        try:
            if _vllm(tree, guess):
                found.add(guess)
        except _Unforeseen:
            continue
    if _sglang(tree, ("message",)):
        found.add("sglang-0.4.7")
    if _sglang(tree, ("message", "msg", "m")):
        found.add("sglang-0.5.1")
    if "sglang-0.5.1" in found or any(word in source for word in _SGLANG_WORDS):
        found.add("sglang-0.5.3")
    return frozenset(found)


def _sglang(tree: Any, names: tuple[str, ...]) -> bool:
    from jinja2 import nodes

    return any(
        _accesses(loop.iter, name, "content") for loop in tree.find_all(nodes.For) for name in names
    )


def _vllm(tree: Any, guess: Guess) -> bool:
    from jinja2 import nodes

    aliases = _aliases(tree, "messages", through_namespaces=guess == "vllm-0.33")
    messages = [
        _name_of(loop.target)
        for loop in tree.find_all(nodes.For)
        if any(_accesses(loop.iter, alias) for alias in aliases)
    ]
    arguments: dict[int, frozenset[str]] = {}
    if guess in ("vllm-0.30", "vllm-0.33"):
        for macro in tree.find_all(nodes.Macro):
            given = frozenset(_given_content(tree, macro, messages))
            for loop in macro.find_all(nodes.For):
                arguments[id(loop)] = given or arguments.get(id(loop), given)
    for loop in tree.find_all(nodes.For):
        if any(_accesses(loop.iter, name, "content") for name in messages):
            _name_of(loop.target)
            return True
        names = arguments.get(id(loop), {"content"}) if guess != "vllm-0.6.5" else ()
        if isinstance(loop.iter, nodes.Name) and loop.iter.name in names:
            _name_of(loop.target)
            return True
    return False


def _given_content(tree: Any, macro: Any, messages: list[str]) -> Iterator[str]:
    """Yield the macro's arguments that some call of it gives a message's content."""
    from jinja2 import nodes

    names = [argument.name for argument in macro.args]
    for call in tree.find_all(nodes.Call):
        if not isinstance(call.node, nodes.Name) or call.node.name != macro.name:
            continue
        given = [*zip(names, call.args, strict=False)]
        given += [(keyword.key, keyword.value) for keyword in call.kwargs if keyword.key in names]
        for name, value in given:
            if any(_accesses(value, message, "content") for message in messages):
                yield name


def _aliases(tree: Any, name: str, *, through_namespaces: bool) -> list[str]:
    """Return the name and all that are set from it, wherever that is (scopes aren't looked at)."""
    from jinja2 import nodes

    found = [name]
    for alias in found:  # grows on the way
        for assignment in tree.find_all(nodes.Assign):
            target, value = assignment.target, assignment.node
            new: list[str] = []
            if _accesses(value, alias):
                if isinstance(target, nodes.Name):
                    new = [target.name]
                elif not through_namespaces:
                    raise _Unforeseen
                elif isinstance(target, nodes.NSRef):
                    new = [f"{target.name}.{target.attr}"]
            elif (
                through_namespaces
                and isinstance(target, nodes.Name)
                and isinstance(value, nodes.Call)
                and isinstance(value.node, nodes.Name)
                and value.node.name == "namespace"
            ):
                new = [
                    f"{target.name}.{keyword.key}"
                    for keyword in value.kwargs
                    if _accesses(keyword.value, alias)
                ]
            found += [each for each in new if each not in found]
    return found


def _accesses(node: Any, name: str, key: str | None = None) -> bool:
    """Say whether an expression is a variable, or a key of it, perhaps filtered or sliced."""
    from jinja2 import nodes

    if isinstance(node, nodes.Filter):
        return node.node is not None and _accesses(node.node, name, key)
    if isinstance(node, nodes.Test):
        return _accesses(node.node, name, key)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return _accesses(node.node, name, key)
    if key is None:
        return _is_variable(node, name)
    if isinstance(node, nodes.Getitem):
        is_key = isinstance(node.arg, nodes.Const) and node.arg.value == key
        return is_key and _is_variable(node.node, name)
    return isinstance(node, nodes.Getattr) and node.attr == key and _is_variable(node.node, name)


def _is_variable(node: Any, name: str) -> bool:
    from jinja2 import nodes

    if isinstance(node, nodes.Name):
        return node.ctx == "load" and bool(node.name == name)
    if isinstance(node, nodes.Getattr) and "." in name:
        base, _, attribute = name.rpartition(".")
        return node.attr == attribute and _is_variable(node.node, base)
    return False


def _name_of(target: Any) -> str:
    from jinja2 import nodes

    if not isinstance(target, nodes.Name):
        raise _Unforeseen
    return str(target.name)
