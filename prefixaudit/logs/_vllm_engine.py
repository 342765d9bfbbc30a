"""What vLLM says of its own cache in its log: rates, usage, preemptions, and the pool's size.

V0 (0.6) gives the rate of all lookups since start, V1 (0.8 on) that of the last 1,000 requests,
weighted by tokens. `Preemptions` counts those of an interval; they are summed here, so that the
figure runs since the log's first line. 0.33 names the device instead of `GPU`, and leaves the rate
out until there was a request.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

from prefixaudit.core.reading import EngineReading, PoolReading
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._pool_lines import pool_figures
from prefixaudit.logs._vllm_lines import Message

_ENGINE: Final = re.compile(r"^(?:Engine (\d{1,6})|\d{1,6} Engines Aggregated): ")
_PERCENT: Final = r"(-?\d{1,9}(?:\.\d{1,9})?)%"
_COUNT: Final = r"(\d{1,15})"
_V0_RATE: Final = re.compile(rf"Prefix cache hit rate: GPU: {_PERCENT}, CPU: {_PERCENT}")
_RATE: Final = re.compile(rf"(?<!External )Prefix cache hit rate: {_PERCENT}")
_EXTERNAL: Final = re.compile(rf"External prefix cache hit rate: {_PERCENT}")
_USAGE: Final = re.compile(rf"(?<!CPU )KV cache usage: {_PERCENT}")
_RUNNING: Final = re.compile(rf"Running: {_COUNT} reqs")
_WAITING: Final = re.compile(rf"(?:Waiting|Pending): {_COUNT} reqs")
_PREEMPTIONS: Final = re.compile(rf"Preemptions: {_COUNT}")


class VllmEngine:
    """Takes messages of one log and keeps what they say in the log's file."""

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self._num_preemptions: Counter[str | None] = Counter()

    def take(self, message: Message) -> None:
        """Read a message off; most are about something else."""
        text = message.text
        if "cache" not in text and "Preemptions" not in text and "block" not in text:
            return
        if text.startswith(("Avg prompt throughput: ", "Prefix cache hit rate: ")) or (
            "Engine" in text[:40] and _ENGINE.match(text)
        ):
            self._take_reading(message)
        elif figures := pool_figures(text[:2000]):
            self._file.read_off(
                PoolReading(
                    source=self._file.source(message.line),
                    engine="vllm",
                    server=UNKNOWN if message.process is None else message.process,
                    num_pool_tokens=figures.get("num_tokens", UNKNOWN),
                    num_pool_blocks=figures.get("num_blocks", UNKNOWN),
                    block_size=figures.get("block_size", UNKNOWN),
                )
            )

    def _take_reading(self, message: Message) -> None:
        text = message.text
        match = _ENGINE.match(text)
        engine = match.group(1) if match else None
        figures: dict[str, Any] = {}
        if v0 := _V0_RATE.search(text):
            figures |= {"hit_rate": _rate(v0), "hit_rate_scope": "since-start"}
        elif rate := _RATE.search(text):
            figures |= {"hit_rate": _rate(rate), "hit_rate_scope": "recent-requests"}
        if preemptions := _PREEMPTIONS.search(text):
            self._num_preemptions[engine] += int(preemptions.group(1))
        if self._num_preemptions[engine]:
            figures["num_preemptions"] = self._num_preemptions[engine]
        for name, pattern in (("external_hit_rate", _EXTERNAL), ("kv_usage", _USAGE)):
            if found := pattern.search(text):
                figures[name] = _rate(found)
        for name, pattern in (("num_running", _RUNNING), ("num_waiting", _WAITING)):
            if found := pattern.search(text):
                figures[name] = int(found.group(1))
        if figures:
            self._file.read_off(
                EngineReading(
                    source=self._file.source(message.line),
                    time_s=message.time_s,
                    engine="vllm",
                    server=UNKNOWN if engine is None else engine,
                    **figures,
                )
            )


def _rate(match: re.Match[str]) -> Known[float]:
    """Return a percentage as a rate; vLLM writes a negative one where nothing was counted."""
    rate = float(match.group(1)) / 100
    return rate if 0 <= rate <= 1 else UNKNOWN
