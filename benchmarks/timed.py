"""Times the serving of 100,000 requests in time: 4 million accesses of 512-token blocks.

Run as `python benchmarks/timed.py [--runs N] [--json FILE]`. Each run is a process of its own that
builds the trace, serves it once and prints what the serving alone took; the first one compiles the
loop and isn't counted. Memory is the whole process's, the trace included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from measure import machine, median, table
from traces import TraceShape, requests

SHAPE = TraceShape(
    num_requests=100_000,
    num_block_accesses=4_000_000,
    num_distinct_blocks=600_000,
    num_conversations=10_000,
    system_prompt_blocks=4,
)
BLOCK_SIZE = 512
POOLS_BLOCKS = (16_384, 65_536)


def run_once(capacity_blocks: int) -> None:
    """Build the trace, serve it, and print CPU seconds, peak bytes and a few figures as JSON."""
    import resource

    from prefixaudit.chain import TraceBuilder
    from prefixaudit.core.prompt import Prompt
    from prefixaudit.core.request import BlockHashes, Request, Source
    from prefixaudit.plan.timing import MeasuredEngine, measured_steps
    from prefixaudit.pool.vllm.rules import GroupRules, pool_rules, release_rules
    from prefixaudit.pool.vllm.scheduler import SchedulerRules
    from prefixaudit.pool.vllm.timed import serve_timed

    builder = TraceBuilder(block_size=BLOCK_SIZE, cache_generated=True)
    answers = []
    for index, item in enumerate(requests(SHAPE)):
        num_prompt_tokens = len(item.hash_ids) * BLOCK_SIZE
        ids = BlockHashes(
            hash_ids=item.hash_ids, block_size=BLOCK_SIZE, num_prompt_tokens=num_prompt_tokens
        )
        request = Request(
            request_id=str(index),
            source=Source("trace", index + 1),
            prompt=ids,
            arrival_s=item.timestamp_ms / 1000,
        )
        builder.add(
            Prompt(
                request=request,
                tokens=ids,
                num_prompt_tokens=num_prompt_tokens,
                generated_token_ids=None,
            ),
            index,
        )
        answers.append(item.num_generated_tokens)
    trace = builder.finish()
    num_answer_tokens = np.asarray(answers, dtype=np.int64)
    longest = int((trace.num_prompt_tokens + num_answer_tokens).max()) + 1
    steps = measured_steps(
        MeasuredEngine(prefill_tokens_per_s=400_000, step_s=0.006),
        max_model_tokens=longest,
        max_tokens=8192,
    )
    started_s = time.process_time()
    serving = serve_timed(
        trace,
        np.zeros(trace.num_requests, np.int32),
        capacity_blocks=capacity_blocks,
        pool=pool_rules(release_rules("0.33.0"), (GroupRules(kind="full", block_size=BLOCK_SIZE),)),
        scheduler=SchedulerRules(
            max_num_batched_tokens=8192, max_num_seqs=256, max_model_tokens=longest
        ),
        seconds=steps.fast,
        num_answer_tokens=num_answer_tokens,
    )
    cpu_s = time.process_time() - started_s
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        json.dumps(
            {
                "cpu_s": cpu_s,
                "peak_bytes": peak,
                "num_block_accesses": trace.num_block_accesses,
                "num_steps": serving.num_steps,
                "num_answer_tokens": int(num_answer_tokens.sum()),
                "token_hit_rate": float(
                    serving.num_cached_tokens.sum() / trace.num_prompt_tokens.sum()
                ),
                "num_preemptions": int(serving.num_preemptions.sum()),
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    parser.add_argument("--capacity", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.capacity is not None:
        run_once(arguments.capacity)
        return
    rows = []
    for capacity_blocks in POOLS_BLOCKS:
        command = [sys.executable, __file__, "--capacity", str(capacity_blocks)]
        runs = [
            json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
            for _ in range(arguments.runs + 1)
        ][1:]
        rows.append(
            {
                **runs[0],
                "capacity_blocks": capacity_blocks,
                "cpu_s": median([run["cpu_s"] for run in runs]),
                "peak_bytes": max(run["peak_bytes"] for run in runs),
            }
        )
    print(machine())
    heads = ["pool", "CPU", "peak memory", "block accesses", "steps", "answer tokens", "hit rate"]
    print(
        table(
            [
                heads,
                *(
                    [
                        f"{row['capacity_blocks']:,} blocks",
                        f"{row['cpu_s']:.2f} s",
                        f"{row['peak_bytes'] / 1e6:,.0f} MB",
                        f"{row['num_block_accesses']:,}",
                        f"{row['num_steps']:,}",
                        f"{row['num_answer_tokens']:,}",
                        f"{row['token_hit_rate']:.1%}",
                    ]
                    for row in rows
                ),
            ]
        )
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
