"""What decides hits in SGLang's radix cache and changed between releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from packaging.version import Version

from prefixaudit.errors import UsageError

HitCounts: TypeAlias = Literal["never", "insertions", "every-insertion", "requests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangRules:
    """The rules of one release.

    evicts       `need`: when room is short, as many tokens are evicted as are asked for, whatever
                 is free (up to 0.5.16); `shortfall`: only those that are missing (from 0.5.17)
    hit_counts   what a node counts: nothing (up to 0.5.9); the insertions that pass it, but not
                 those of an unfinished chunk (0.5.10 to 0.5.21); the requests that pass it, each
                 once (from 0.5.22). `every-insertion` is the tree alone, driven without a scheduler
    namespace    `concatenated`: cache_salt + extra_key as one text (up to 0.5.17);
                 `pair`: (extra_key, cache_salt) (from 0.5.18)
    raises_prompt  when a request ends, its prompt is inserted once more with a priority one
                 higher, so that its answer goes first (from 0.5.20)
    """

    evicts: Literal["need", "shortfall"]
    hit_counts: HitCounts
    namespace: Literal["concatenated", "pair"]
    raises_prompt: bool


def rules_of(version: str) -> SglangRules:
    """Return the rules of an SGLang release (`0.5.9`, `0.4.10.post2`).

    Read in the `RadixCache` of 0.5.9, 0.5.10, 0.5.16 and 0.5.18 to 0.5.23.
    """
    release = Version(version)
    counts: HitCounts = "requests"
    if release < Version("0.5.10"):
        counts = "never"
    elif release < Version("0.5.22"):
        counts = "insertions"
    return SglangRules(
        evicts="need" if release < Version("0.5.17") else "shortfall",
        hit_counts=counts,
        namespace="concatenated" if release < Version("0.5.18") else "pair",
        raises_prompt=release >= Version("0.5.20"),
    )


def namespace_key(
    rules: SglangRules, *, cache_salt: str | None, extra_key: str | None
) -> tuple[str, ...]:
    """Return what separates two requests of equal tokens in the tree.

    `extra_key` already holds the adapter's id where there is one. Empty text is no text.
    """
    salt, extra = cache_salt or "", extra_key or ""
    if rules.namespace == "concatenated":
        return (salt + extra,)
    return (extra, salt)


def check_block_size(block_size: int) -> int:
    """Return a page size that SGLang could run with. Raises UsageError below 1."""
    if block_size < 1:
        raise UsageError(f"page size {block_size}: a page holds 1 token or more")
    return block_size
