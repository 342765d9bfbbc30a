"""A radix tree over the tokens of prompts: the longest prefix shared with any earlier one, exactly.

Each node holds a copy of the tokens between two places where prompts part, so the tree takes four
bytes for every token that wasn't in it yet. A step compares arrays; their number is the number of
partings on a prompt's way, not its length. What no recent prompt passed is dropped when the tree
outgrows its bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from prefixaudit.core.prefixes import common_length
from prefixaudit.core.request import TokenArray

_NOTHING: Final = np.empty(0, dtype=np.uint32)


@dataclass(slots=True, eq=False)
class Node:
    """Tokens [start, start + len(tokens)) of every prompt that passes; `last` is the latest one."""

    tokens: TokenArray
    start: int
    parent: Node | None
    last: int
    children: dict[int, Node] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True)
class Inserted:
    """Where a prompt went: its shared length, the latest prompt that shares it, and its end."""

    num_shared: int
    partner: int
    node: Node


class PrefixTree:
    """Holds at most about `max_tokens` tokens (4 bytes each)."""

    def __init__(self, max_tokens: int) -> None:
        self._root = Node(tokens=_NOTHING, start=0, parent=None, last=-1)
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self.num_dropped_tokens = 0

    def insert(self, tokens: TokenArray, number: int) -> Inserted:
        """Add a prompt; `number` grows from call to call. Returns what it shares with earlier ones.

        The partner is -1 where nothing is shared.
        """
        node = self._root
        place, partner = 0, -1
        length = len(tokens)
        while place < length:
            child = node.children.get(int(tokens[place]))
            if child is None:
                break
            same = common_length(child.tokens, tokens[place:])
            partner = child.last
            place += same
            if same < len(child.tokens):
                node = self._split(child, same)
                break
            node = child
        shared = place
        if place < length:
            leaf = Node(tokens=tokens[place:].copy(), start=place, parent=node, last=number)
            node.children[int(tokens[place])] = leaf
            self._num_tokens += length - place
            node = leaf
        step: Node | None = node
        while step is not None:
            step.last = number
            step = step.parent
        if self._num_tokens > self._max_tokens:
            self._prune(number)
        return Inserted(shared, partner, node)

    @staticmethod
    def tokens_of(node: Node, length: int) -> TokenArray:
        """Return the first `length` tokens on the way to the end of `node`."""
        parts: list[TokenArray] = []
        step: Node | None = node
        while step is not None:
            parts.append(step.tokens)
            step = step.parent
        tokens: TokenArray = np.concatenate(parts[::-1])[:length]
        return tokens

    @staticmethod
    def shared_length(first: Node, second: Node) -> int:
        """Return how many tokens two nodes' ways share."""
        way = set()
        step: Node | None = first
        while step is not None:
            way.add(id(step))
            step = step.parent
        step = second
        while step is not None:
            if id(step) in way:
                return step.end
            step = step.parent
        return 0

    def _split(self, node: Node, length: int) -> Node:
        """Cut a node after `length` tokens; the lower half stays the same object."""
        upper = Node(
            tokens=node.tokens[:length].copy(),
            start=node.start,
            parent=node.parent,
            last=node.last,
        )
        assert node.parent is not None, "the root has no tokens"
        node.parent.children[int(node.tokens[0])] = upper
        node.tokens = node.tokens[length:].copy()
        node.start += length
        node.parent = upper
        upper.children[int(node.tokens[0])] = node
        return upper

    def _prune(self, number: int) -> None:
        """Drop what only the older prompts passed, until half of the room is free."""
        ages = []
        waiting = [self._root]
        while waiting:
            node = waiting.pop()
            ages.append((node.last, len(node.tokens)))
            waiting.extend(node.children.values())
        ages.sort(reverse=True)
        kept, oldest = 0, number
        for last, size in ages:
            kept += size
            if kept > self._max_tokens // 2:
                break
            oldest = last
        waiting = [self._root]
        left = 0
        while waiting:
            node = waiting.pop()
            left += len(node.tokens)
            stale = [token for token, child in node.children.items() if child.last < oldest]
            for token in stale:
                del node.children[token]
            waiting.extend(node.children.values())
        self.num_dropped_tokens += self._num_tokens - left
        self._num_tokens = left
