"""How fast logs are read: read_logs against bare orjson on the same lines, by turns.

    python benchmarks/reading.py [--megabytes 200] [--turns 5] [--folder DIR]

Wide bodies are chats of 70 KB with tools, narrow ones gateway records of 0.9 KB, ids a log of token
ids. Each measurement is the CPU time of one process that reads the whole file from the page cache:
`bare` splits the file into lines and calls orjson.loads on each, `read` iterates read_logs and
looks at nothing.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
from measure import machine, median, table

from prefixaudit.logs import read_logs

_WORDS = [f"word{number}" for number in range(5000)]


def wide(number: int, random_: random.Random) -> dict[str, Any]:
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{place}",
                "description": " ".join(random_.choices(_WORDS, k=40)),
                "parameters": {
                    "type": "object",
                    "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
                },
            },
        }
        for place in range(8)
    ]
    messages = [{"role": "system", "content": " ".join(random_.choices(_WORDS, k=2000))}]
    for turn in range(6):
        role = "user" if turn % 2 == 0 else "assistant"
        messages.append({"role": role, "content": " ".join(random_.choices(_WORDS, k=900))})
    return _gateway(number, {"model": "harbor-8b", "messages": messages, "tools": tools})


def narrow(number: int, random_: random.Random) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": " ".join(random_.choices(_WORDS, k=20))},
        {"role": "user", "content": " ".join(random_.choices(_WORDS, k=20))},
    ]
    return _gateway(number, {"model": "harbor-8b", "messages": messages, "temperature": 0.2})


def ids(number: int, random_: random.Random) -> dict[str, Any]:
    return {
        "request_id": f"r-{number}",
        "arrival_s": 1_772_438_400 + number * 0.05,
        "tenant": f"t-{number % 50}",
        "prompt_token_ids": [random_.randrange(60_000) for _ in range(2000)],
    }


def _gateway(number: int, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "timestamp": f"2026-03-02T08:{number // 60 % 60:02}:{number % 60:02}.125Z",
        "request_id": f"chatcmpl-{number:08}",
        "path": "/v1/chat/completions",
        "status": 200,
        "headers": {"x-tenant": f"t-{number % 50}", "content-type": "application/json"},
        "body": body,
        "response": {
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}}],
            "usage": {
                "prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 102,
                "prompt_tokens_details": {"cached_tokens": 96},
            },
        },
    }  # fmt: skip


def write(path: Path, make: Callable[[int, random.Random], dict[str, Any]], num_bytes: int) -> None:
    random_ = random.Random(7)
    lines = [orjson.dumps(make(number, random_)) + b"\n" for number in range(64)]
    left = num_bytes
    with path.open("wb") as file:
        while left > 0:
            for line in lines:
                file.write(line)
                left -= len(line)


def bare(path: Path) -> Iterator[object]:
    """Yield each line decoded, read in blocks of 1 MiB as the readers do."""
    rest = b""
    with path.open("rb", buffering=0) as file:
        while block := file.read(2**20):
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            for line in lines:
                yield orjson.loads(line)
    if rest:
        yield orjson.loads(rest)


def timed(make: Callable[[], object]) -> float:
    """Return CPU seconds of one reading in a process of its own."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        gc.set_threshold(100_000, 50, 50)  # as the command line does
        started = time.process_time()
        for _ in make():  # type: ignore[attr-defined]
            pass
        os.write(write_end, repr(time.process_time() - started).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        return float(pipe.read())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    rows = [["log", "lines", "bare MB/s", "read MB/s", "µs a line, read", "read / bare"]]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for name, make in (("wide", wide), ("narrow", narrow), ("ids", ids)):
            path = Path(folder, f"{name}.jsonl")
            write(path, make, options.megabytes * 10**6)
            size = path.stat().st_size
            num_lines = sum(1 for _ in bare(path))
            seconds: dict[str, list[float]] = {"bare": [], "read": []}
            for _ in range(options.turns):
                seconds["bare"].append(timed(lambda path=path: bare(path)))
                seconds["read"].append(timed(lambda path=path: read_logs([str(path)])))
            bare_s, read_s = median(seconds["bare"]), median(seconds["read"])
            ratio = median([r / b for r, b in zip(seconds["read"], seconds["bare"], strict=True)])
            rows.append(
                [
                    f"{name}, {size / num_lines / 1000:.1f} KB a line",
                    f"{num_lines:,}",
                    f"{size / bare_s / 1e6:,.0f}",
                    f"{size / read_s / 1e6:,.0f}",
                    f"{read_s / num_lines * 1e6:.1f}",
                    f"{ratio:.2f}",
                ]
            )
            path.unlink()
    print(machine())
    print(table(rows))


if __name__ == "__main__":
    main()
