"""Times whole commands by turns and prints medians and ratios: what the benchmarks here share.

Every figure comes from the operating system's accounting of the finished process. The commands of
one comparison take turns, so a ratio holds while the machine's speed drifts.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished process: seconds by the clock, CPU seconds, and its largest memory in bytes."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def run_once(command: Sequence[str]) -> Run:
    """Run a command with its output thrown away. Raises CalledProcessError where it fails."""
    started_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    message = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - started_s
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command, stderr=message.decode())
    return Run(
        wall_s=wall_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_bytes=usage.ru_maxrss * 1024,
    )


def run_by_turns(
    commands: Mapping[str, Sequence[str]], num_runs: int, *, num_warm_up_runs: int = 1
) -> dict[str, list[Run]]:
    """Run the commands A B C A B C …; the warm-up turns aren't counted."""
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for turn in range(num_warm_up_runs + num_runs):
        for name, command in commands.items():
            run = run_once(command)
            if turn >= num_warm_up_runs:
                runs[name].append(run)
    return runs


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def machine() -> str:
    """Name the processor, the cores this process may use, and the Python."""
    model = "unknown processor"
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        for line in cpu_info.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, Python {platform.python_version()}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a Markdown table, the first one as its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
