"""How fast the hit curve over all capacities is, what it takes in memory, and whether it is right.

Run as `python benchmarks/curve.py [--runs N] [--json FILE]`. Prints medians of several runs in this
process, kernels warm; seconds are this process's CPU time.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from traces import BLOCK_SIZE, TraceShape, requests

from prefixaudit.chain import TraceBuilder
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import BlockHashes, Request, Source
from prefixaudit.core.trace import BlockTrace
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.pool import replay_lru


def prompts(shape: TraceShape) -> list[Prompt]:
    """Return the benchmark trace as prompts, so that making them isn't measured."""
    result = []
    for place, line in enumerate(requests(shape)):
        hashes = BlockHashes(
            hash_ids=line.hash_ids,
            block_size=BLOCK_SIZE,
            num_prompt_tokens=line.num_prompt_tokens,
        )
        request = Request(
            request_id=str(place),
            source=Source("trace", place + 1),
            prompt=hashes,
            arrival_s=line.timestamp_ms / 1e3,
        )
        result.append(
            Prompt(
                request=request,
                tokens=hashes,
                num_prompt_tokens=line.num_prompt_tokens,
                generated_token_ids=UNKNOWN,
            )
        )
    return result


def plain_lru_hits(all_prompts: list[Prompt], capacity_blocks: int) -> int:
    """Return the hits (blocks) of a dictionary of blocks, the oldest used dropped first."""
    pool: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for prompt in all_prompts:
        assert isinstance(prompt.tokens, BlockHashes)
        ids = prompt.tokens.hash_ids.tolist()
        for block in ids[: (prompt.num_prompt_tokens - 1) // BLOCK_SIZE]:
            if block not in pool:
                break
            hits += 1
        for block in reversed(ids):
            pool[block] = None
            pool.move_to_end(block)
        while len(pool) > capacity_blocks:
            pool.popitem(last=False)
    return hits


def timed(action: Callable[[], object], runs: int) -> float:
    """Return the median CPU seconds of `runs` calls after one that isn't counted."""
    action()
    seconds = []
    for _ in range(runs):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--skip-check", action="store_true", help="leave the plain LRU out")
    arguments = parser.parse_args()
    shape = TraceShape()
    all_prompts = prompts(shape)
    base_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def build() -> BlockTrace:
        builder = TraceBuilder(block_size=BLOCK_SIZE, cache_generated=False)
        for index, prompt in enumerate(all_prompts):
            builder.add(prompt, index)
        return builder.finish()

    trace = build()
    shared = np.zeros(trace.num_requests, dtype=np.int32)
    tenants = np.arange(trace.num_requests, dtype=np.int32) % 50
    depths = int(trace.num_blocks.max())
    by_depth = np.linspace(1.0, 2.0, depths)
    curve, _ = replay_lru(
        trace, shared, capacity_blocks=None, min_recomputed_tokens=1, flops_by_depth=by_depth
    )
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    accesses = trace.num_block_accesses
    print(
        f"{trace.num_requests:,} requests, {accesses:,} block accesses, "
        f"{trace.num_distinct_blocks:,} blocks, {len(trace.tree.parent):,} runs"
    )
    cases: dict[str, Callable[[], object]] = {
        "build the trace from block ids": build,
        "curve": lambda: replay_lru(
            trace,
            shared,
            capacity_blocks=None,
            min_recomputed_tokens=1,
            flops_by_depth=None,
            with_donors=False,
        ),
        "curve, FLOPs, donors": lambda: replay_lru(
            trace, shared, capacity_blocks=500_000, min_recomputed_tokens=1, flops_by_depth=by_depth
        ),
        "the same, 50 namespaces": lambda: replay_lru(
            trace,
            tenants,
            capacity_blocks=500_000,
            min_recomputed_tokens=1,
            flops_by_depth=by_depth,
        ),
    }
    figures: dict[str, float] = {}
    for name, action in cases.items():
        seconds = timed(action, arguments.runs)
        figures[name] = accesses / seconds
        print(f"{name:<32} {seconds:8.3f} s {accesses / seconds / 1e6:10.1f} million accesses/s")
    figures["bytes per access"] = (peak_bytes - base_bytes) / accesses
    print(f"memory above the prompts: {figures['bytes per access']:.1f} bytes per access")
    if not arguments.skip_check:
        largest = trace.num_distinct_blocks
        for capacity in (1_000, largest // 64, largest // 16, largest // 4, largest):
            expected = plain_lru_hits(all_prompts, capacity)
            same = expected == curve.at(capacity)[0]
            print(f"plain LRU of {capacity:>9,} blocks: {expected:>12,} hits, equal: {same}")
            assert same
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
