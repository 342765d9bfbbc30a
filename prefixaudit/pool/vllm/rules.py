"""What decides hits in a vLLM pool: its KV groups, its sizes, and the rules of the release.

Nothing here computes; an engine profile or a vector's settings fill these values. The rules by
release are those of vLLM's block pool and cache managers (0.11.2 to 0.33.0, see `release_rules`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

from packaging.version import InvalidVersion, Version

from prefixaudit.core.engine import EngineProfile
from prefixaudit.errors import ConfigurationError, UsageError

FreeOrder = Literal["all-last", "unhashed-first"]
BigBlockKey = Literal["concatenated", "last"]
MambaSplit = Literal["last-block", "last-block-or-shared", "stops-up-to-last", "stops"]
WINDOWED_KINDS: Final = ("swa", "chunked-local")


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleRules:
    """What follows, in a release, from the last matched block that an EAGLE lookup drops.

    keeps_dropped_block  with several groups, the block after an aligned end gets a key too
    reads_whole_prompt   with several groups, the block to drop may hold the prompt's last token
    retains_both_ends    a sparse group keeps what a resent and what a longer prompt ends on after
                         the drop, not the prompt's end itself
    retains_below_shared_prefix  it also keeps the tail one block below a shared prefix's end
    """

    keeps_dropped_block: bool
    reads_whole_prompt: bool
    retains_both_ends: bool
    retains_below_shared_prefix: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRules:
    """What changed between releases.

    free_order         where freed blocks without a key go: behind all others with the rest, or to
                       the front of the free queue
    window_free_order  the same for blocks that a window leaves, and for a sliding window's blocks
                       when its request ends
    big_block_key      the key of a block of several hash units: all their keys, or the last one
    registers_tails    the end of a prompt inside a block gets a key of its own (several groups)
    tail_excludes_last_token  that end, and the last block whose recurrent state is kept, leave the
                       prompt's last token out, which a replay can't hit (EAGLE aside, whose lookup
                       reads the whole prompt before it drops)
    pins_shared_prefixes  a prefix that one group holds and a sparse one lacks is kept from now on
    reserves_beside_copy  a recurrent group that copies a block asks for one more, needed or not
    cuts_every_full_kind  a hit that another kind shrinks is cut in all kinds of full attention, not
                       just in the first of them
    retention_default_tokens  the retention interval where none is configured; None is dense
    eagle              what a drafter's dropped block changes
    mamba_split        how chunks are cut where recurrent states are kept at block ends: at the last
                       block only, or on admission also where a shared prefix ends, or in each chunk
                       where a shared prefix or a started block ends (at first only as far as the
                       last block, and with no chunk that is shorter than a block)
    """

    free_order: FreeOrder
    window_free_order: FreeOrder
    big_block_key: BigBlockKey
    registers_tails: bool
    tail_excludes_last_token: bool
    pins_shared_prefixes: bool
    reserves_beside_copy: bool
    cuts_every_full_kind: bool
    retention_default_tokens: int | None
    mamba_split: MambaSplit
    eagle: EagleRules


_OLDEST: Final = ReleaseRules(
    free_order="all-last",
    window_free_order="all-last",
    big_block_key="concatenated",
    registers_tails=False,
    tail_excludes_last_token=False,
    pins_shared_prefixes=False,
    reserves_beside_copy=False,
    cuts_every_full_kind=False,
    retention_default_tokens=None,
    mamba_split="last-block",
    eagle=EagleRules(
        keeps_dropped_block=False,
        reads_whole_prompt=False,
        retains_both_ends=False,
        retains_below_shared_prefix=False,
    ),
)
_FROM_0_23: Final = replace(
    _OLDEST,
    window_free_order="unhashed-first",
    eagle=replace(_OLDEST.eagle, keeps_dropped_block=True),
)
_FROM_0_24: Final = replace(
    _FROM_0_23,
    free_order="unhashed-first",
    big_block_key="last",
    mamba_split="last-block-or-shared",
)
_FROM_0_26: Final = replace(
    _FROM_0_24,
    registers_tails=True,
    pins_shared_prefixes=True,
    reserves_beside_copy=True,
    mamba_split="stops-up-to-last",
)
_FROM_0_27: Final = replace(_FROM_0_26, mamba_split="stops")
_FROM_0_29: Final = replace(_FROM_0_27, cuts_every_full_kind=True)
_FROM_0_30: Final = replace(
    _FROM_0_29,
    retention_default_tokens=0,
    eagle=replace(_FROM_0_29.eagle, retains_both_ends=True),
)
_FROM_0_31: Final = replace(_FROM_0_30, reserves_beside_copy=False)
_FROM_0_32: Final = replace(
    _FROM_0_31,
    tail_excludes_last_token=True,
    eagle=replace(_FROM_0_31.eagle, reads_whole_prompt=True),
)
_FROM_0_33: Final = replace(
    _FROM_0_32, eagle=replace(_FROM_0_32.eagle, retains_below_shared_prefix=True)
)
_BY_FIRST_RELEASE: Final = (
    (Version("0.33"), _FROM_0_33),
    (Version("0.32"), _FROM_0_32),
    (Version("0.31"), _FROM_0_31),
    (Version("0.30"), _FROM_0_30),
    (Version("0.29"), _FROM_0_29),
    (Version("0.27"), _FROM_0_27),
    (Version("0.26"), _FROM_0_26),
    (Version("0.24"), _FROM_0_24),
    (Version("0.23"), _FROM_0_23),
)


def release_rules(version: str) -> ReleaseRules:
    """Return the rules of a vLLM release. Raises ConfigurationError on what is no version."""
    try:
        parsed = Version(version)
    except InvalidVersion as error:
        raise ConfigurationError(
            f"'{version}' is not a vLLM version; expected a number such as 0.33.0"
        ) from error
    for first, rules in _BY_FIRST_RELEASE:
        if parsed >= first:
            return rules
    return _OLDEST


def release_rules_of(profile: EngineProfile) -> ReleaseRules:
    """Return the rules of an engine profile. Raises UsageError if it isn't vLLM's pool.

    What the profile states (free order, key of a larger block, retention) is taken from it, the
    rest from its version.
    """
    pool, groups = profile.pool, profile.groups
    orders: dict[str, FreeOrder] = {
        "all-to-back": "all-last",
        "unhashed-to-front": "unhashed-first",
    }
    if pool is None or groups is None or pool.eviction_regime not in orders:
        raise UsageError(f"engine '{profile.name}' has no vLLM block pool to replay")
    if profile.facts_version is None:
        raise UsageError(f"engine '{profile.name}' has no version; its rules aren't known")
    return replace(
        release_rules(profile.facts_version),
        free_order=orders[pool.eviction_regime],
        big_block_key="last" if groups.larger_block_hash == "last" else "concatenated",
        retention_default_tokens=groups.default_retention_interval,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """One KV group. `kind` is a module of `groups`: full, swa, chunked-local, mamba.

    window_tokens   the sliding window, or the attention chunk of chunked-local; None otherwise
    drops_last_block  the group belongs to an EAGLE or MTP drafter
    """

    kind: str
    block_size: int
    window_tokens: int | None = None
    drops_last_block: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRules:
    """A whole pool. Sizes are tokens; `num_blocks` elsewhere counts the null block, as vLLM does.

    hash_block_size       unit of the keys that requests bring
    scheduler_block_size  unit of a hit across groups: a multiple of every group's block size
    retention_interval_tokens  None: dense; 0: only the tails that a replay or a shared prefix needs
    use_eagle             speculative decoding of the EAGLE kind; without a marked group all drop
    """

    release: ReleaseRules
    groups: tuple[GroupRules, ...]
    hash_block_size: int
    scheduler_block_size: int
    retention_interval_tokens: int | None = None
    use_eagle: bool = False

    def __post_init__(self) -> None:
        problems = [
            problem
            for group in self.groups
            for problem in _group_problems(group, self.hash_block_size, self.scheduler_block_size)
        ]
        if not self.groups:
            problems.append("a pool has no KV group; expected one or more")
        if len(self.groups) == 1 and self.groups[0].block_size != self.hash_block_size:
            problems.append("a pool of one KV group is hashed at its own block size")
        if self.use_eagle and any(group.kind == "chunked-local" for group in self.groups):
            problems.append("vLLM runs no EAGLE drafter with chunked local attention")
        interval = self.retention_interval_tokens
        if interval is not None and (interval < 0 or interval % self.scheduler_block_size):
            problems.append(
                f"retention interval {interval}; expected 0 or a multiple of the scheduler block "
                f"size {self.scheduler_block_size}"
            )
        if problems:
            raise ConfigurationError(problems)

    @property
    def dropping_groups(self) -> frozenset[int]:
        """Return the numbers of the groups whose last matched block is dropped on a lookup."""
        marked = frozenset(
            number for number, group in enumerate(self.groups) if group.drops_last_block
        )
        if self.use_eagle and not marked:
            return frozenset(range(len(self.groups)))
        return marked


def _group_problems(group: GroupRules, hash_size: int, scheduler_size: int) -> list[str]:
    name = f"'{group.kind}' group"
    if min(group.block_size, hash_size, scheduler_size) < 1:
        return [f"a block size of a {name} or of its pool is below 1; expected 1 or more"]
    problems = []
    if group.block_size % hash_size:
        problems.append(
            f"block size {group.block_size} of a {name}; expected a multiple of the hash block "
            f"size {hash_size}"
        )
    if scheduler_size % group.block_size:
        problems.append(
            f"scheduler block size {scheduler_size}; expected a multiple of the block size "
            f"{group.block_size} of a {name}"
        )
    if group.kind in WINDOWED_KINDS and (group.window_tokens is None or group.window_tokens < 1):
        problems.append(f"a {name} has no window; expected 1 token or more")
    if group.kind == "chunked-local" and group.block_size != scheduler_size:
        problems.append(f"a {name} with blocks of another size beside it; vLLM doesn't run that")
    return problems


def pool_rules(
    release: ReleaseRules,
    groups: tuple[GroupRules, ...],
    *,
    hash_block_size: int | None = None,
    scheduler_block_size: int | None = None,
    retention_interval_tokens: int | None | Literal["default"] = "default",
    use_eagle: bool = False,
) -> PoolRules:
    """Return a pool's rules. Raises ConfigurationError for what vLLM can't run.

    Unless given, the hash unit is the gcd of the groups' block sizes, the scheduler's their lcm.
    """
    sizes = [group.block_size for group in groups]
    return PoolRules(
        release=release,
        groups=groups,
        hash_block_size=math.gcd(*sizes) if hash_block_size is None else hash_block_size,
        scheduler_block_size=(
            math.lcm(*sizes) if scheduler_block_size is None else scheduler_block_size
        ),
        retention_interval_tokens=(
            release.retention_default_tokens
            if retention_interval_tokens == "default"
            else retention_interval_tokens
        ),
        use_eagle=use_eagle,
    )
