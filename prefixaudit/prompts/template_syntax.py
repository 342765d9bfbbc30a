"""What the syntax tree of a chat template shows of prompts that change: places, by line.

A use is a hint, not a fault: whether it moves a prompt is found by rendering.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from jinja2 import Environment

UseKind: TypeAlias = Literal[
    "clock",
    "random",
    "loop-end",
    "last-message",
    "backwards",
    "looked-for-ahead",
    "cut-content",
    "trimmed-content",
    "forbidden",
]
"""clock             `strftime_now`
random            a choice at random
loop-end          `loop.last`, `loop.revindex`, `loop.length`, `loop.nextitem`: a message is written
                  by what follows it
last-message      `messages[-1]`, `messages | last`: what is written depends on the newest message
backwards         messages are walked through from the end
looked-for-ahead  a `namespace` is set while walking through messages: one loop looks for something
                  (the last user turn) that another one then writes by
cut-content       content is split or sliced, as to take thoughts out of it
trimmed-content   content is stripped of space at its ends
forbidden         a method that the sandbox forbids, for it changes a list or a dictionary
"""

_LOOP_ENDS: Final = frozenset({"last", "revindex", "revindex0", "length", "nextitem"})
_STRIPS: Final = frozenset({"strip", "rstrip", "lstrip"})
_CHANGES: Final = frozenset(
    {
        *("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse"),
        *("update", "setdefault", "popitem"),
    }
)
_GIVEN: Final = frozenset(
    {
        *("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"),
        *("unk_token", "sep_token", "pad_token", "cls_token", "mask_token"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntaxUse:
    """One place: what is used (`name` as the template writes it), and the line, from 1."""

    kind: UseKind
    name: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSyntax:
    """Uses in the order of lines; `variables` are those that callers may set beside the usual."""

    uses: tuple[SyntaxUse, ...]
    variables: tuple[str, ...]

    def lines(self, *kinds: UseKind) -> tuple[int, ...]:
        """Return the lines of some kinds of uses, each once."""
        return tuple(dict.fromkeys(use.line for use in self.uses if use.kind in kinds))


def syntax_of(environment: Environment, source: str) -> TemplateSyntax:
    """Return the uses and variables of a valid template."""
    from jinja2 import meta, nodes

    tree = environment.parse(source)
    uses = dict.fromkeys(_uses(tree))
    # What a branch sets is undeclared elsewhere, and isn't meant to be given.
    own = {name.name for name in tree.find_all(nodes.Name) if name.ctx in ("store", "param")}
    free = meta.find_undeclared_variables(tree) - {*environment.globals, *_GIVEN, *own}
    return TemplateSyntax(
        uses=tuple(sorted(uses, key=lambda use: (use.line, use.kind, use.name))),
        variables=tuple(sorted(free)),
    )


def _uses(tree: Any) -> Iterator[SyntaxUse]:
    from jinja2 import nodes

    for name in tree.find_all(nodes.Name):
        if name.name == "strftime_now":
            yield SyntaxUse(kind="clock", name=name.name, line=name.lineno)
        elif name.name == "lipsum":
            yield SyntaxUse(kind="random", name=name.name, line=name.lineno)
    for part in tree.find_all(nodes.Filter):
        if part.name == "random":
            yield SyntaxUse(kind="random", name="| random", line=part.lineno)
        elif part.name == "last" and _is_messages(part.node):
            yield SyntaxUse(kind="last-message", name="messages | last", line=part.lineno)
        elif part.name == "reverse" and _is_messages(part.node):
            yield SyntaxUse(kind="backwards", name="messages | reverse", line=part.lineno)
        elif part.name == "trim" and _is_content(part.node):
            yield SyntaxUse(kind="trimmed-content", name="| trim", line=part.lineno)
    for item in tree.find_all(nodes.Getitem):
        yield from _item_uses(item)
    for attribute in tree.find_all(nodes.Getattr):
        if attribute.attr in _LOOP_ENDS and _named(attribute.node) == "loop":
            yield SyntaxUse(kind="loop-end", name=f"loop.{attribute.attr}", line=attribute.lineno)
    for call in tree.find_all(nodes.Call):
        yield from _call_uses(call)
    for loop in tree.find_all(nodes.For):
        if _mentions_messages(loop.iter):
            for assignment in loop.find_all(nodes.Assign):
                if isinstance(assignment.target, nodes.NSRef):
                    name = f"{assignment.target.name}.{assignment.target.attr}"
                    yield SyntaxUse(kind="looked-for-ahead", name=name, line=assignment.lineno)


def _item_uses(item: Any) -> Iterator[SyntaxUse]:
    from jinja2 import nodes

    if isinstance(item.arg, nodes.Slice):
        step = item.arg.step
        if step is not None and _number(step) == -1 and _is_messages(item.node):
            yield SyntaxUse(kind="backwards", name="messages[::-1]", line=item.lineno)
        elif _is_content(item.node):
            yield SyntaxUse(kind="cut-content", name="content[:]", line=item.lineno)
    elif _number(item.arg) == -1 and _is_messages(item.node):
        yield SyntaxUse(kind="last-message", name="messages[-1]", line=item.lineno)


def _call_uses(call: Any) -> Iterator[SyntaxUse]:
    from jinja2 import nodes

    if not isinstance(call.node, nodes.Getattr):
        return
    method, of = call.node.attr, call.node.node
    if method in _STRIPS and _is_content(of):
        yield SyntaxUse(kind="trimmed-content", name=f".{method}()", line=call.lineno)
    elif method in ("split", "rsplit", "partition") and _is_content(of):
        yield SyntaxUse(kind="cut-content", name=f".{method}()", line=call.lineno)
    elif method in _CHANGES:
        yield SyntaxUse(kind="forbidden", name=f".{method}()", line=call.lineno)


def _named(node: Any) -> str:
    return str(getattr(node, "name", ""))


def _is_messages(node: Any) -> bool:
    """Say whether an expression is the list of messages, sliced or filtered perhaps."""
    from jinja2 import nodes

    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return _is_messages(node.node)
    if isinstance(node, nodes.Filter) and node.node is not None:
        return _is_messages(node.node)
    return "messages" in _named(node)


def _mentions_messages(node: Any) -> bool:
    from jinja2 import nodes

    return _is_messages(node) or any(map(_is_messages, node.find_all(nodes.Name)))


def _is_content(node: Any) -> bool:
    """Say whether an expression is a message's content or a variable named after it."""
    from jinja2 import nodes

    if isinstance(node, nodes.Getattr):
        return "content" in node.attr or _is_content(node.node)
    if isinstance(node, nodes.Getitem):
        if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
            return "content" in node.arg.value
        return _is_content(node.node)
    if isinstance(node, nodes.Call):
        return _is_content(node.node)
    if isinstance(node, nodes.Filter) and node.node is not None:
        return _is_content(node.node)
    return "content" in _named(node)


def _number(node: Any) -> int | None:
    from jinja2 import nodes

    if isinstance(node, nodes.Neg):
        inner = _number(node.node)
        return None if inner is None else -inner
    if isinstance(node, nodes.Const) and isinstance(node.value, int):
        return node.value
    return None
