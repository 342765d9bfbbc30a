"""What is said of a plan beside its figures: findings, assumptions, and what wasn't compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from prefixaudit.plan.basis import RELEASE_WITHOUT_ENGINE
from prefixaudit.plan.report import Option
from prefixaudit.plan.routing import NEEDS_TIME, parameters_of
from prefixaudit.plan.shape import Cliff

if TYPE_CHECKING:
    from prefixaudit.plan.basis import Basis
    from prefixaudit.plan.hardware import Hardware

_NEAR_CLIFF: Final = 0.8
_MUCH_EVICTED: Final = 0.1
_BLIND_ROUTINGS: Final = ("round-robin", "random")
_MUCH_LOST_BY_ROUTING: Final = 0.02


def evicted(here: float, endless: float, capacity: int, enough: int) -> Sequence[str]:
    """Return what this pool loses for want of room: nothing below 10 points of hit rate."""
    if endless - here < _MUCH_EVICTED:
        return ()
    return (
        f"this pool of {capacity:,} blocks evicts what is asked for again: "
        f"{endless - here:.1%} of the prompt tokens would hit in a larger one, all of them "
        f"from {enough:,} blocks on",
    )


def findings(cliffs: Sequence[Cliff], capacity: int, rows: Sequence[Option]) -> Sequence[str]:
    """Return cliffs, and where this pool in time isn't what it is one after another."""
    found = []
    for cliff in cliffs:
        text = (
            f"cliff: from {cliff.from_blocks:,} to {cliff.to_blocks:,} blocks the hit rate "
            f"leaps from {cliff.hit_rate_below:.1%} to {cliff.hit_rate_above:.1%}"
        )
        if cliff.to_blocks * _NEAR_CLIFF <= capacity < cliff.to_blocks:
            missing = cliff.to_blocks - capacity
            text += (
                f"; this pool of {capacity:,} blocks stands {missing:,} short of its top: what "
                "is used in turn evicts itself (thrashing)"
            )
        elif cliff.to_blocks <= capacity < cliff.to_blocks / _NEAR_CLIFF:
            text += "; this pool stands just above it, with little room for a larger log"
        found.append(text)
    for row in rows:
        timed = row.timed
        if timed is None or row.sweep not in ("capacity", "hardware"):
            continue
        if timed.is_overloaded and row.capacity_blocks == capacity:
            found.append(
                f"{row.label}: one replica can't keep up with this load at the slow end; its "
                "waiting times grow with the log's length"
            )
        gap = abs(sum(timed.token_hit_rate) / 2 - (row.token_hit_rate or 0.0))
        if gap >= 0.01 and row.capacity_blocks == capacity:
            found.append(
                f"{row.label}: in time the hit rate is {timed.token_hit_rate[0]:.1%} to "
                f"{timed.token_hit_rate[1]:.1%}, one after another {row.token_hit_rate:.1%}: "
                "running requests hold blocks, and prefixes are hit once they are scheduled"
            )
    return list(dict.fromkeys([*found, *_routings(rows)]))


def _routings(rows: Sequence[Option]) -> Iterator[str]:
    """Yield what a routing that doesn't look at sessions loses against one that does."""
    rates = {
        (row.num_replicas, name): (row.label, row.token_hit_rate)
        for row in rows
        for name in ("session", *_BLIND_ROUTINGS)
        if row.sweep == "replicas"
        and row.token_hit_rate is not None
        and row.label == f"{row.num_replicas} x {name}"
    }
    for (number, name), (label, rate) in rates.items():
        by_session, most = rates.get((number, "session"), ("", rate))
        if name in _BLIND_ROUTINGS and most - rate >= _MUCH_LOST_BY_ROUTING:
            yield (
                f"{label} hits {most - rate:.1%} of the tokens less than {by_session}: it sends a "
                "session's next turn to a replica that has not seen the session"
            )


def assumptions(
    basis: Basis, hardware: Hardware | None, *, about: str, answer_origin: str
) -> tuple[str, ...]:
    """Return what the figures rest on, but for the seconds of a step."""
    options = basis.options
    lines = [f"pool: {about}", f"answers: {answer_origin}"]
    if basis.why_no_time is None and (hardware or options.measured):
        rules = basis.rules.release
        lines.append(
            "in time: vLLM's synchronous scheduler, "
            f"{len(basis.groups) or 1} KV group{'s' if basis.groups else ''}; freed blocks "
            f"without a key go {'first' if rules.free_order == 'unhashed-first' else 'last'}; "
            f"max_num_batched_tokens {options.max_num_batched_tokens:,}, max_num_seqs "
            f"{options.max_num_seqs:,}; arrivals of the log"
            + ("" if options.load == 1 else f" at {options.load:g} times its speed")
        )
        lines.append(
            "TTFT is waiting, lookup, fetch and prefill; tokenizing and HTTP (0 to 16 ms) are "
            "left out"
        )
        if basis.engine is None:
            lines.append(
                f"no engine given: in time vLLM {RELEASE_WITHOUT_ENGINE}'s rules, which queue a "
                "prompt's tail with the other blocks as the pool above does"
            )
    lines += [f"routing {name}: {parameters_of(name)}" for name in options.compared_routings]
    if options.tiers:
        lines.append(
            "tiers: a step waits for the fetches of the requests that it admits; blocks of all "
            "ranks come together; writing takes no time"
        )
    return tuple(lines)


def notes_on(basis: Basis, hardware: Hardware | None, num_servers: int) -> Sequence[str]:
    """Return what wasn't compared, and why."""
    options = basis.options
    notes: list[str] = []
    if basis.why_no_time is not None:
        what = (
            "nothing was served in time, tiers weren't compared"
            if options.tiers
            else "nothing was served in time"
        )
        notes.append(f"{what}: {basis.why_no_time}")
    elif hardware is None and options.measured is None:
        notes.append(
            "nothing was served in time: give --gpus and --model, or what you measured with "
            "--throughput"
        )
    if basis.groups:
        notes.append(
            f"the model has {len(basis.groups)} KV groups and a token takes a block of each: "
            "the curve is that of the sizes simulated; tiers, replicas and targets aren't "
            "compared in time"
        )
    asked = options.compared_routings
    if "session" in asked and not (basis.trace.session >= 0).any():
        notes.append("no request names its session: routing by session wasn't compared")
    if NEEDS_TIME & set(asked) and not (hardware or options.measured):
        notes.append("routers that look at the load need time: they weren't compared")
    if num_servers > 1:
        notes.append(
            f"the deployment's {num_servers} servers are taken as one pool; "
            "--replicas says what several do"
        )
    if options.has_isolation and not any(
        isinstance(getattr(identity, name), str)
        for identity in basis.trace.identities
        for name in ("tenant", "trust_domain", "user")
    ):
        notes.append("no request names its tenant or user: isolation wasn't compared")
    if options.sample is not None:
        notes.append(
            "the sample's rates are those of plain LRU pools of full blocks; simulations in "
            "time took the whole log, since a part of it is another load"
        )
    if basis.trace.has_partial_id.any() and options.block_sizes:
        notes.append("in larger blocks a trace's partial ids say nothing: full blocks only")
    return notes
