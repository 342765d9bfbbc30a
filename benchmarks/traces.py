"""Makes the large trace of the benchmarks: conversations that grow, Zipf-like and interleaved.

Every request carries on a conversation: its ids are those of the turn before and some new ones.
Popular conversations have more turns and share one of a few system prompts. Deterministic by seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceShape:
    """What the trace looks like; the default has 20,000 requests and 20 million block accesses."""

    num_requests: int = 20_000
    num_block_accesses: int = 20_000_000
    num_distinct_blocks: int = 2_100_000
    num_conversations: int = 2_000
    num_system_prompts: int = 20
    system_prompt_blocks: int = 100
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """One line of the trace: `hash_ids` uint64, the last one standing for a full block."""

    timestamp_ms: int
    num_prompt_tokens: int
    num_generated_tokens: int
    hash_ids: NDArray[np.uint64]


def requests(shape: TraceShape | None = None) -> Iterator[TraceRequest]:
    """Yield the requests in order of arrival.

    Turns are dealt to conversations by a Zipf law (exponent 0.6). The lengths come out as asked:
    a turn adds `num_distinct_blocks / num_requests` blocks on average, a conversation that would
    grow beyond bounds starts anew, and the bound is set by bisection to meet the accesses.
    """
    shape = shape or TraceShape()
    random = np.random.default_rng(shape.seed)
    weights = 1.0 / np.arange(1, shape.num_conversations + 1) ** 0.6
    conversation = random.choice(
        shape.num_conversations, size=shape.num_requests, p=weights / weights.sum()
    )
    new_blocks = 1 + random.poisson(
        shape.num_distinct_blocks / shape.num_requests - 1, size=shape.num_requests
    )
    gaps_ms = random.exponential(50.0, size=shape.num_requests)
    arrival_ms = np.cumsum(gaps_ms).astype(np.int64)
    bound = _bound(shape, conversation, new_blocks)
    system = [
        np.arange(i * shape.system_prompt_blocks, (i + 1) * shape.system_prompt_blocks)
        for i in range(shape.num_system_prompts)
    ]
    next_id = shape.num_system_prompts * shape.system_prompt_blocks
    history: dict[int, NDArray[np.uint64]] = {}
    for place in range(shape.num_requests):
        which = int(conversation[place])
        added = int(new_blocks[place])
        before = history.get(which)
        if before is None or len(before) + added > bound:
            before = system[which % shape.num_system_prompts].astype(np.uint64)
        new = np.arange(next_id, next_id + added, dtype=np.uint64)
        next_id += added
        history[which] = np.concatenate([before, new])
        yield TraceRequest(
            timestamp_ms=int(arrival_ms[place]),
            num_prompt_tokens=len(history[which]) * BLOCK_SIZE,
            num_generated_tokens=16 * (1 + place % 40),
            hash_ids=history[which],
        )


def _bound(
    shape: TraceShape, conversation: NDArray[np.int64], new_blocks: NDArray[np.int64]
) -> int:
    """Return the length (blocks) at which a conversation starts anew, to meet the accesses."""
    low, high = shape.system_prompt_blocks + 1, 1_000_000
    while low < high:
        middle = (low + high) // 2
        length = dict.fromkeys(range(shape.num_conversations), 0)
        total = 0
        for which, added in zip(conversation.tolist(), new_blocks.tolist(), strict=True):
            before = length[which]
            if not before or before + added > middle:
                before = shape.system_prompt_blocks
            length[which] = before + added
            total += before + added
        if total < shape.num_block_accesses:
            low = middle + 1
        else:
            high = middle
    return low


def write_mooncake(path: Path, shape: TraceShape | None = None) -> None:
    """Write the trace as Mooncake JSON lines (the block size, 16 tokens, isn't in the file)."""
    with path.open("w", encoding="ascii") as file:
        for request in requests(shape):
            ids = ", ".join(map(str, request.hash_ids.tolist()))
            file.write(
                f'{{"timestamp": {request.timestamp_ms}, '
                f'"input_length": {request.num_prompt_tokens}, '
                f'"output_length": {request.num_generated_tokens}, "hash_ids": [{ids}]}}\n'
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="the file to write")
    parser.add_argument("--requests", type=int, default=TraceShape().num_requests)
    arguments = parser.parse_args()
    share = arguments.requests / TraceShape().num_requests
    write_mooncake(
        arguments.path,
        TraceShape(
            num_requests=arguments.requests,
            num_block_accesses=int(TraceShape().num_block_accesses * share),
            num_distinct_blocks=int(TraceShape().num_distinct_blocks * share),
        ),
    )


if __name__ == "__main__":
    main()
