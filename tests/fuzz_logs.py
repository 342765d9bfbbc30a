"""A long fuzz run over all log readers: python -m tests.fuzz_logs [SECONDS] [SEED]

Samples of every format are damaged (bytes flipped, cut, repeated and moved; values of JSON replaced
by others) and read, under the format they are recognised as and under every other one. What must
hold: no exception but the ones meant for users, every line with anything on it accounted for, no
reading that takes long. It prints a summary and ends with 1 where anything failed; what failed is
kept in files beside the summary's lines, to be read again.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, Final

from prefixaudit.core.request import Request
from prefixaudit.errors import PrefixAuditError
from prefixaudit.logs import LOG_FORMATS, LogStream, ReadOptions, read_logs

SAMPLES: Final = Path(__file__).parent / "logs" / "data" / "samples"
MAX_READING_S: Final = 5.0
_ODD: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 2**31, 2**63, 10**25, 1e308, "", "x", "\0", "{", "[]", "null",
    '{"a": 1}', "2026-03-02T08:00:00Z", "é😀", [], [[]], {}, {"a": []}, [None], [{}], "a" * 5000,
)  # fmt: skip


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return the data with a few bytes changed, cut, repeated or moved."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(out) + 1)
        kind = rng.randrange(7)
        if kind == 0:
            out[place:place] = bytes(rng.choice([1, 3, 300]))
        elif kind == 1:
            del out[place : place + rng.choice([1, 2, 50])]
        elif kind == 2:
            out[place : place + 1] = rng.randbytes(1)
        elif kind == 3:
            out[place:place] = rng.choice(
                [b"\n", b'"', b"\xff", b"\xef\xbb\xbf", b"{", b"]", b"\\"]
            )
        elif kind == 4:
            start = rng.randrange(len(out) + 1)
            out[place:place] = out[start : start + rng.randint(1, 400)]
        elif kind == 5 and rng.random() < 0.2:
            del out[place:]
        else:
            out[place:place] = rng.choice([b"[" * 3000, b"9" * 400, b"\r\n", b"NaN", b"\\ud800"])
    return bytes(out)


def odd_values(data: bytes, rng: random.Random) -> bytes:
    """Return JSON lines with some of their values replaced by ones of other types and sizes."""
    lines: list[bytes] = []
    for line in data.split(b"\n"):
        try:
            value = json.loads(line)
        except ValueError:
            lines.append(line)
            continue
        lines.append(json.dumps(_changed(value, rng, 0.1)).encode())
    return b"\n".join(lines)


def _changed(value: Any, rng: random.Random, share: float) -> Any:
    if rng.random() < share:
        return rng.choice(_ODD)
    if isinstance(value, dict):
        kept = [(key, item) for key, item in value.items() if rng.random() > share / 4]
        return {key: _changed(item, rng, share) for key, item in kept}
    if isinstance(value, list):
        return [_changed(item, rng, share) for item in value]
    return value


def problem_of(path: Path, data: bytes, options: ReadOptions) -> str | None:
    """Read the file; return what is wrong with the reading, None where all is well."""
    started = time.perf_counter()
    try:
        stream = read_logs([str(path)], options)
        items = list(stream)
    except PrefixAuditError:
        return None
    took_s = time.perf_counter() - started
    if took_s > MAX_READING_S:
        return f"reading {len(data)} bytes took {took_s:.1f} s"
    return _loss(stream, data, {item.source.line for item in items}, items)


def _loss(stream: LogStream, data: bytes, lines: set[int], items: list[Any]) -> str | None:
    file = stream.files[0]
    num_aside = sum(file.set_aside.values()) + file.num_other_lines
    if stream.num_records and not items and not num_aside:
        return f"{stream.num_records} records gave nothing"
    is_plain = (
        data[:4] not in _BINARY
        and file.layout == "lines"
        and file.encoding.startswith("utf-8")
        and not num_aside
    )
    if is_plain and file.format_name in _LINE_FORMATS:
        missing = {
            number
            for number, line in enumerate(data.split(b"\n"), 1)
            if line.strip(b" \t\r").removeprefix(b"\xef\xbb\xbf").strip(b" \t\r")
            and number not in lines
        }
        if missing:
            return f"nothing says what became of line {min(missing)}"
    for item in items:
        if isinstance(item, Request) and not item.request_id:
            return "a request has no id"
    return None


_BINARY: Final = (b"PAR1", b"ARRO")
# Formats whose records are all lines of JSON, so that each line has an item of its own.
_LINE_FORMATS: Final = frozenset(
    {"tokens", "openai", "anthropic", "openai-responses", "lmcache-agent", "envoy-ai-gateway",
     "sagemaker", "sharegpt", "lmsys", "wildchat", "usage"}
)  # fmt: skip


def main() -> int:
    limit_s = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32)
    rng = random.Random(seed)
    samples = sorted(path for path in SAMPLES.iterdir() if path.is_file())
    originals = {path: path.read_bytes() for path in samples}
    names = list(LOG_FORMATS)
    counts: Counter[str] = Counter()
    failures: list[str] = []
    seen: list[list[str]] = []
    ends_at = time.monotonic() + limit_s
    folder = Path(tempfile.mkdtemp(prefix="fuzz-logs-"))
    while time.monotonic() < ends_at:
        sample = rng.choice(samples)
        data = originals[sample]
        data = odd_values(data, rng) if rng.random() < 0.5 else damaged(data, rng)
        name = None if rng.random() < 0.5 else rng.choice(names)
        path = folder / f"case{sample.suffix}"
        path.write_bytes(data)
        counts[sample.name] += 1
        try:
            problem = problem_of(path, data, ReadOptions(log_format=name, max_line_bytes=10**6))
        except Exception:
            problem = traceback.format_exc()
        if problem is not None:
            kept = folder / f"failure-{len(failures)}{sample.suffix}"
            path.rename(kept)
            where = problem.strip().splitlines()[-3:]
            if where not in seen:
                print(f"{kept} (of {sample.name}, --log-format {name}): {problem}", flush=True)
                seen.append(where)
            failures.append(problem)
            if len(seen) >= 20:
                break
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{counts.total()} readings of {len(counts)} samples in {limit_s:.0f} s (seed {seed}): "
        f"{len(failures)} failures, peak memory {peak_mib:.0f} MiB"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
