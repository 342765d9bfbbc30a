"""Eviction policies of a radix tree, one file each, ending in `POLICY = EvictionPolicy(...)`.

A policy is a rank: of all unlocked leaves the one with the smallest rank is evicted first. The rank
may read what the tree keeps of a node (see `Leaf`) and nothing else, and has to end in a time, so
that no two leaves ever have the same one. The names are SGLang's (`--radix-eviction-policy`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from prefixaudit.registry import Registry

Rank: TypeAlias = tuple[int, ...]


class Leaf(Protocol):
    """What a policy may know of a node.

    last_access  clock of the last lookup or insertion that passed the node
    created      clock at which the node was made, by insertion or by a split
    num_hits     insertions or requests that passed the node, the one that made it included; 0 in
                 releases that don't count
    priority     the highest priority of the requests that stored or passed the node
    """

    @property
    def last_access(self) -> int: ...
    @property
    def created(self) -> int: ...
    @property
    def num_hits(self) -> int: ...
    @property
    def priority(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionPolicy:
    """A title for people, and the rank of a leaf: the smallest goes first."""

    title: str
    rank: Callable[[Leaf], Rank]


POLICIES: Final = Registry[EvictionPolicy](
    kind="eviction policy", package="prefixaudit.pool.eviction", attribute="POLICY"
)
