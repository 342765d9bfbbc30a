"""How many block operations a second the explicit pool does, by capacity and regime.

Run as `python benchmarks/explicit_pool.py [--runs N] [--requests N] [--json FILE]`. The loop is
compiled before the first measured run; seconds are this process's CPU time, medians of several
runs. An operation is a block found by a lookup, taken from the pool or given back; the rate of
block accesses (blocks of requests) is about half of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
from curve import prompts
from traces import BLOCK_SIZE, TraceShape

from prefixaudit.chain import TraceBuilder
from prefixaudit.pool.explicit import BlockPoolRules, simulate_pool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--requests", type=int, default=TraceShape().num_requests)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    arguments = parser.parse_args()
    share = arguments.requests / TraceShape().num_requests
    shape = TraceShape(
        num_requests=arguments.requests,
        num_block_accesses=int(TraceShape().num_block_accesses * share),
        num_distinct_blocks=int(TraceShape().num_distinct_blocks * share),
    )
    builder = TraceBuilder(block_size=BLOCK_SIZE, cache_generated=False)
    for index, prompt in enumerate(prompts(shape)):
        builder.add(prompt, index)
    trace = builder.finish()
    namespaces = np.zeros(trace.num_requests, dtype=np.int32)
    distinct = trace.num_distinct_blocks
    rows = []
    for unhashed_first in (False, True):
        rules = BlockPoolRules(unhashed_first=unhashed_first, num_reserved_blocks=1)
        for capacity_blocks in (distinct // 100, distinct // 10, distinct // 2):
            simulate_pool(trace, namespaces, capacity_blocks=capacity_blocks, rules=rules)
            seconds = []
            for _ in range(arguments.runs):
                start_s = time.process_time()
                pool = simulate_pool(
                    trace, namespaces, capacity_blocks=capacity_blocks, rules=rules
                )
                seconds.append(time.process_time() - start_s)
            median_s = statistics.median(seconds)
            rows.append(
                {
                    "regime": "unhashed first" if unhashed_first else "all last",
                    "capacity_blocks": capacity_blocks,
                    "num_block_accesses": trace.num_block_accesses,
                    "num_operations": pool.num_operations,
                    "num_evicted_blocks": pool.num_evicted_blocks,
                    "hit_blocks": int(pool.lookups.num_cached_tokens.sum()) // BLOCK_SIZE,
                    "cpu_s": median_s,
                    "million_operations_per_s": pool.num_operations / median_s / 1e6,
                    "million_accesses_per_s": trace.num_block_accesses / median_s / 1e6,
                }
            )
            print(
                f"{rows[-1]['regime']:<15}{capacity_blocks:>9} blocks {median_s:6.2f} s CPU "
                f"{rows[-1]['million_operations_per_s']:7.1f} M operations/s "
                f"{rows[-1]['million_accesses_per_s']:7.1f} M accesses/s"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
