"""What the audit adds to `prefixaudit analyze`: 100,000 requests of 50 tenants, by turns with it.

    python benchmarks/audit.py [--requests 100000] [--tenants 50] [--runs 3]

Each tenant has a system prompt of its own behind a public one, and conversations that grow; one
request in fifty is another tenant's prompt, so that the audit has donors to tell apart. Figures are
CPU seconds of the whole process, from the operating system.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
from measure import machine, median, run_by_turns, table

_DEPLOYMENT = """
[model]
name = "harbor-8b-chat"
[engine]
name = "vllm"
version = "0.33.0"
[pool]
capacity_blocks = 60000
[identity]
lora_name = false
"""


def records(num_requests: int, num_tenants: int) -> Iterator[bytes]:
    """Yield lines of token ids; deterministic."""
    random = np.random.default_rng(7)
    public = random.integers(1000, 60_000, 64)
    system = [random.integers(1000, 60_000, 96) for _ in range(num_tenants)]
    history: dict[tuple[int, int], list[int]] = {}
    tenants = random.zipf(1.3, num_requests) % num_tenants
    for number in range(num_requests):
        tenant = int(tenants[number])
        conversation = int(random.integers(0, 400))
        key = (tenant, conversation)
        turns = history.get(key)
        if turns is None or len(turns) > 320:
            turns = [*public.tolist(), *system[tenant].tolist()]
        turns = [*turns, *random.integers(1000, 60_000, int(random.integers(8, 40))).tolist()]
        history[key] = turns
        if number % 50 == 0:  # somebody else sends the same prompt
            tenant = (tenant + 1) % num_tenants
        yield orjson.dumps(
            {
                "request_id": f"r-{number}",
                "arrival_s": 1_772_438_400 + number * 0.05,
                "tenant": f"tenant-{tenant}",
                "cache_salt": None,
                "prompt_token_ids": turns,
            }
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--requests", type=int, default=100_000)
    options.add_argument("--tenants", type=int, default=50)
    options.add_argument("--runs", type=int, default=3)
    arguments = options.parse_args()
    program = Path(sys.executable).parent / "prefixaudit"
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "requests.jsonl"
        with log.open("wb") as file:
            for line in records(arguments.requests, arguments.tenants):
                file.write(line + b"\n")
        (Path(name) / "prefixaudit.toml").write_text(_DEPLOYMENT)
        runs = run_by_turns(
            {
                "analyze --no-audit": [str(program), "analyze", str(log), "--no-audit"],
                "analyze": [str(program), "analyze", str(log)],
            },
            arguments.runs,
        )
        size = log.stat().st_size
    cpu = {name: median([run.cpu_s for run in each]) for name, each in runs.items()}
    bare = cpu["analyze --no-audit"]
    rows = [["command", "CPU s", "ratio", "peak MiB"]]
    for name, each in runs.items():
        peak = max(run.peak_bytes for run in each) / 2**20
        rows.append([name, f"{cpu[name]:.2f}", f"{cpu[name] / bare:.2f}", f"{peak:,.0f}"])
    print(f"{machine()}; {arguments.requests:,} requests, {size / 1e6:,.0f} MB")
    print(table(rows))


if __name__ == "__main__":
    main()
