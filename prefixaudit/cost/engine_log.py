"""Reads what an engine says of its own pool at start-up; that beats any estimate.

Lines of vLLM (`vllm/v1/core/kv_cache_utils.py`, `gpu_worker.py`, `config`) and of SGLang
(`model_runner.py`, `scheduler.py`). Other lines are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from prefixaudit.logs._pool_lines import pool_figures

_LINE_LIMIT: Final = 2000
_NUMBER: Final = r"([0-9][0-9,]*)"
_KV_GIB: Final = re.compile(r"Available KV cache memory:\s*([0-9.]+) GiB")
_CONCURRENCY: Final = re.compile(
    rf"Maximum concurrency for {_NUMBER} tokens per request:\s*([0-9.]+)x"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLog:
    """What the log says; None where it doesn't.

    With several replicas or ranks in one log the smallest pool counts, as it does for the engine.
    `concurrency` is (tokens a request, requests that fit at once).
    """

    num_tokens: int | None = None
    num_blocks: int | None = None
    block_size: int | None = None
    kv_bytes: int | None = None
    concurrency: tuple[int, float] | None = None

    @property
    def is_empty(self) -> bool:
        return self == EngineLog()

    @property
    def has_size(self) -> bool:
        """Say whether the log tells how large the pool is."""
        sizes = (self.num_tokens, self.num_blocks, self.kv_bytes)
        return any(size is not None for size in sizes)


def read_engine_log(lines: Iterable[str]) -> EngineLog:
    """Return what the first million lines of a start-up log say of the pool."""
    found: dict[str, int] = {}
    kv_bytes: int | None = None
    concurrency: tuple[int, float] | None = None
    for line in islice(lines, 1_000_000):
        text = line[:_LINE_LIMIT]
        for name, number in pool_figures(text).items():
            # The last word on the block size counts; pools count by the smallest.
            smaller = min(found.get(name, number), number)
            found[name] = number if name == "block_size" else smaller
        if match := _KV_GIB.search(text):
            size = int(float(match.group(1)) * 2**30)
            kv_bytes = size if kv_bytes is None else min(kv_bytes, size)
        if match := _CONCURRENCY.search(text):
            said = (int(match.group(1).replace(",", "")), float(match.group(2)))
            concurrency = said if concurrency is None else min(concurrency, said)
    return EngineLog(
        num_tokens=found.get("num_tokens"),
        num_blocks=found.get("num_blocks"),
        block_size=found.get("block_size"),
        kv_bytes=kv_bytes,
        concurrency=concurrency,
    )
