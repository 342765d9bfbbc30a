"""The whole `analyze` command on a trace of 20 million block accesses, against its peers.

    python benchmarks/analyze_trace.py [--runs 5] [--peers] [--folder DIR]

The file holds 20,000 requests of 16-token blocks as Mooncake JSON lines. Compared on it:

bare orjson         reads the lines and decodes them, nothing else
prefixaudit         `analyze --format json`: hits at every capacity, donors, report
kvcache-simulator   its compiled core, LRU, one capacity          (with --peers)
libcachesim         LRU, one capacity, `process_trace` of a reader of this format   (with --peers)
libcachesim by hand the same without the package's loop: one request object, changed id by id
libcachesim text    the same through its own C reader, after writing the ids as lines of text

The package's modules are compiled to bytecode first, as they are where pip installed them: an
editable install leaves that to the first run, and to every run where Python may not write it.

The peers come with `pip install kvcache-simulator==0.1.3 libcachesim==0.3.5`.
"""

from __future__ import annotations

import argparse
import compileall
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import machine, median, run_by_turns, run_once, table
from traces import TraceShape, write_mooncake

import prefixaudit

CAPACITY_BLOCKS = 262_144
# kvcache-simulator takes GiB of a model it knows: Llama-3.1-8B in bf16 has 2 MiB a 16-token block.
CAPACITY_GIB = CAPACITY_BLOCKS * 2 // 1024

ORJSON = """
import sys, orjson
with open(sys.argv[1], "rb") as lines:
    for line in lines:
        orjson.loads(line)
"""
# The package reads no JSON; a format of one's own is a class with its protocol of readers.
LIBCACHESIM = """
import sys, orjson, libcachesim
class Reader:
    def __init__(self, path):
        self.path = path
    def reset(self):
        pass
    def __iter__(self):
        with open(self.path, "rb") as lines:
            for line in lines:
                for hash_id in orjson.loads(line)["hash_ids"]:
                    request = libcachesim.Request()
                    request.obj_id = hash_id
                    request.obj_size = 1
                    yield request
libcachesim.LRU(cache_size=int(sys.argv[2])).process_trace(Reader(sys.argv[1]))
"""
LIBCACHESIM_BY_HAND = """
import sys, orjson, libcachesim
cache = libcachesim.LRU(cache_size=int(sys.argv[2]))
request = libcachesim.Request()
request.obj_size = 1
num_hits = 0
with open(sys.argv[1], "rb") as lines:
    for line in lines:
        for hash_id in orjson.loads(line)["hash_ids"]:
            request.obj_id = hash_id
            num_hits += cache.get(request)
"""
LIBCACHESIM_TEXT = """
import os, sys, tempfile, orjson, libcachesim
with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
    with open(sys.argv[1], "rb") as lines:
        for line in lines:
            text.write("\\n".join(map(str, orjson.loads(line)["hash_ids"])) + "\\n")
    text.flush()
    reader = libcachesim.TraceReader(text.name, libcachesim.TraceType.PLAIN_TXT_TRACE)
    libcachesim.LRU(cache_size=int(sys.argv[2])).process_trace(reader)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peers", action="store_true", help="run the two packages too (minutes)")
    parser.add_argument(
        "--folder", type=Path, help="keep the trace here; default: a temporary folder"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        trace = folder / "conversations-16.jsonl"
        num_accesses = TraceShape().num_block_accesses
        if not trace.exists():
            write_mooncake(trace)
        python = sys.executable
        commands = {
            "bare orjson": [python, "-c", ORJSON, str(trace)],
            "prefixaudit": [
                python, "-m", "prefixaudit", "analyze", str(trace), "--block-size", "16",
                "--capacity-blocks", str(CAPACITY_BLOCKS), "--format", "json",
            ],
        }  # fmt: skip
        if arguments.peers:
            simulator = Path(python).with_name("kvcache-simulator")
            commands |= {
                "kvcache-simulator": [
                    str(simulator), "run", "--trace", str(trace), "--model", "llama-3.1-8b",
                    "--block-size", "16", "--budgets-gib", str(CAPACITY_GIB), "--policies", "lru",
                    "--no-progress", "--format", "json",
                ],
                "libcachesim": [python, "-c", LIBCACHESIM, str(trace), str(CAPACITY_BLOCKS)],
                "libcachesim by hand": [
                    python, "-c", LIBCACHESIM_BY_HAND, str(trace), str(CAPACITY_BLOCKS),
                ],
                "libcachesim text": [
                    python, "-c", LIBCACHESIM_TEXT, str(trace), str(CAPACITY_BLOCKS),
                ],
            }  # fmt: skip
        compileall.compile_dir(Path(prefixaudit.__file__).parent, quiet=1)
        interpreter = run_once([python, "-c", "import prefixaudit"])
        try:
            runs = run_by_turns(commands, arguments.runs)
        except subprocess.CalledProcessError as error:
            sys.exit(f"{error}\n{error.stderr}")
    ours_s = [run.wall_s for run in runs["prefixaudit"]]
    rows = [["command", "wall s", "CPU s", "peak MB", "wall / prefixaudit"]]
    for name, measured in runs.items():
        ratios = [run.wall_s / ours for run, ours in zip(measured, ours_s, strict=True)]
        rows.append(
            [
                name,
                f"{median([run.wall_s for run in measured]):.2f}",
                f"{median([run.cpu_s for run in measured]):.2f}",
                f"{median([run.peak_bytes for run in measured]) / 1e6:.0f}",
                f"{median(ratios):.2f}",
            ]
        )
    print(
        f"{machine()}; {num_accesses:,} block accesses, median of {arguments.runs} runs by turns\n"
    )
    print(table(rows))
    extra_bytes = median([run.peak_bytes for run in runs["prefixaudit"]]) - interpreter.peak_bytes
    print(f"\nprefixaudit: {extra_bytes / num_accesses:.1f} bytes an access above the interpreter")


if __name__ == "__main__":
    main()
