"""What decides hits in SGLang's radix cache and changed between releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

from prefixaudit.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangRules:
    """The rules of one release.

    evicts       `need`: when room is short, as many tokens are evicted as are asked for, whatever
                 is free (up to 0.5.16); `shortfall`: only those that are missing (from 0.5.17)
    counts_hits  whether nodes count the insertions that pass them (from 0.5.10)
    namespace    `concatenated`: cache_salt + extra_key as one text (up to 0.5.17);
                 `pair`: (extra_key, cache_salt) (from 0.5.18)
    """

    evicts: Literal["need", "shortfall"]
    counts_hits: bool
    namespace: Literal["concatenated", "pair"]


def rules_of(version: str) -> SglangRules:
    """Return the rules of an SGLang release (`0.5.9`, `0.4.10.post2`)."""
    release = Version(version)
    return SglangRules(
        evicts="need" if release < Version("0.5.17") else "shortfall",
        counts_hits=release >= Version("0.5.10"),
        namespace="concatenated" if release < Version("0.5.18") else "pair",
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
