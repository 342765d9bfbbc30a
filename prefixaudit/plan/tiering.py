"""The sweep of tiers: what a store below the GPU would add, and when a fetch pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from prefixaudit.core.trace import Int64Array
from prefixaudit.cost.hardware import Tier, find_tier
from prefixaudit.cost.savings import break_even_tokens, fetch_s
from prefixaudit.cost.time import TimeModel
from prefixaudit.errors import UsageError
from prefixaudit.plan.basis import Basis
from prefixaudit.plan.hardware import Hardware, block_bytes
from prefixaudit.plan.options import TierChoice
from prefixaudit.plan.report import BreakEven, Option
from prefixaudit.plan.serving import Server
from prefixaudit.plan.sweeps import Sweeper, enough_blocks
from prefixaudit.pool.vllm.timed import Tiers, TierSeconds

_GIB: Final = 2**30


def tier_options(sweeper: Sweeper, choices: Sequence[TierChoice]) -> list[Option]:
    """Return rows for no tier, the first one, the first two …: each adds one below."""
    basis, hardware = sweeper.basis, sweeper.hardware
    if hardware is None:
        raise UsageError("tiers need a GPU and a model: a fetch is held against computing")
    server = sweeper.server(basis, hardware)
    if server is None:
        raise UsageError(f"tiers can't be simulated: {basis.why_no_time}")
    size = block_bytes(basis.spec, hardware.kv_cache_dtype, basis.trace.block_size)
    assert size is not None, "a GPU comes with a model"

    def row(number: int) -> Option:
        chosen = choices[:number]
        ends = tuple(_tiers(basis, chosen, end, size, hardware) for end in (0, 1))
        timed = sweeper.serve(basis, hardware, sweeper.capacity_blocks, tiers=(ends[0], ends[1]))
        names = " + ".join(("GPU", *(_tier_title(choice) for choice in chosen)))
        return sweeper.option(
            "tiers",
            names,
            capacity_blocks=sweeper.capacity_blocks,
            cached=_cached_with_tiers(sweeper, server, ends[0]),
            timed=timed,
            with_safe=False,
            sequential_basis="one request after another, pool and tiers together",
            note=""
            if not chosen
            else f"writes {basis.options.tier_writes.replace('-', ' ')}; fetches shorter than "
            f"{ends[1].min_blocks * basis.trace.block_size:,} tokens are computed",
        )

    return sweeper.rows(range(len(choices) + 1), row)


def _cached_with_tiers(sweeper: Sweeper, server: Server, tiers: Tiers) -> Int64Array:
    """Return the cached tokens of pool and tiers when every request is alone."""
    one = _alone(server)
    [run] = one.runs(
        enough_blocks(sweeper.basis, sweeper.capacity_blocks),
        tiers=(tiers, tiers),
        ends=(server.steps.fast,),
    )
    fetched: Int64Array = run.num_tier_blocks.sum(axis=1) * sweeper.basis.trace.block_size
    return np.maximum(run.num_cached_tokens, 0) + fetched


def _tiers(
    basis: Basis, choices: Sequence[TierChoice], end: int, block: int, hardware: Hardware
) -> Tiers:
    options = basis.options
    size = basis.trace.block_size
    found = []
    shortest = 0
    for choice in choices:
        tier = find_tier(choice.name)
        number = choice.num_blocks
        if number is None:
            number = int((choice.gib or 0.0) * _GIB) // block
        found.append(
            _tier_seconds(hardware.model, tier, num_blocks=number, end=end, block_size=size)
        )
        # Of the first tier: what pays there at worst.
        pays = break_even_tokens(hardware.model, tier)[1]
        if not shortest:
            shortest = 1 << 30 if pays is None else -(-pays // size)
    return Tiers(
        tiers=tuple(found),
        writes_through=options.tier_writes == "through",
        promotes=options.promotes,
        min_blocks=max(shortest, 1),
    )


def break_even(sweeper: Sweeper, names: Sequence[str]) -> tuple[BreakEven, ...]:
    """Return from how many tokens on a fetch from each tier pays; empty without a GPU."""
    if sweeper.hardware is None:
        return ()
    return tuple(
        BreakEven(tier=name, num_tokens=break_even_tokens(sweeper.hardware.model, find_tier(name)))
        for name in names
    )


def _tier_title(choice: TierChoice) -> str:
    if choice.num_blocks is not None:
        return f"{choice.name} {choice.num_blocks:,} blocks"
    return f"{choice.name} {choice.gib or 0:g} GiB"


def _tier_seconds(
    model: TimeModel, tier: Tier, *, num_blocks: int, end: int, block_size: int
) -> TierSeconds:
    """Return a tier at one end of its range (0 fast, 1 slow)."""
    # The fixed part and the part a token, read off two fetches.
    two = fetch_s(model, np.array([block_size, 2 * block_size]), tier)
    seconds = two.lo if end == 0 else two.hi
    token_s = float(seconds[1] - seconds[0]) / block_size
    return TierSeconds(
        num_blocks=num_blocks, token_s=token_s, fixed_s=float(seconds[0]) - token_s * block_size
    )


def _alone(server: Server) -> Server:
    """Return the server with requests so far apart that each is alone: the sequential replay."""
    order = np.argsort(server.arrival_s, kind="stable")
    arrival_s = np.empty(len(order))
    arrival_s[order] = np.arange(len(order)) * 1e7
    return replace(server, arrival_s=arrival_s)
