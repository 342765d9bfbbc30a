"""Metrics of an engine as Prometheus text: no requests, but what it counted of its own cache.

    # TYPE vllm:prefix_cache_queries_total counter
    vllm:prefix_cache_queries_total{engine="0",model_name="m"} 120000.0

A file may hold several scrapes one after another: a series that comes again starts the next one.
Counters run since the server's start; V0's and SGLang's gauges of a hit rate say what they are of.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from prefixaudit.core.reading import EngineReading, PoolReading
from prefixaudit.core.request import Skipped
from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import LogFormat, ReadItem, Sample
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._text_lines import text_lines

_NAME: Final = r"[A-Za-z_:][A-Za-z0-9_:]*"
_LABEL: Final = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"\s*,?')
_SERIES: Final = re.compile(
    rf'({_NAME})(?:\{{((?:[^"}}]++|"(?:[^"\\]++|\\.)*+")*+)\}})?\s+(\S+)(?:\s+(-?\d+))?\s*'
)
_ENGINES: Final = ("vllm", "sglang")
# Labels that tell servers and ranks apart; others tell parts of one figure apart.
_SERVER_LABELS: Final = ("instance", "pod", "engine", "model_name", "dp_rank", "tp_rank", "pp_rank")
# By engine and bare name (without `_total`): the field, and whether parts of it are added up.
_FIGURES: Final[Mapping[str, tuple[str, bool]]] = {
    "vllm:prefix_cache_queries": ("num_queried_tokens", True),
    "vllm:prefix_cache_hits": ("num_hit_tokens", True),
    "vllm:gpu_prefix_cache_queries": ("num_queried_tokens", True),
    "vllm:gpu_prefix_cache_hits": ("num_hit_tokens", True),
    "vllm:external_prefix_cache_queries": ("num_external_queried_tokens", True),
    "vllm:external_prefix_cache_hits": ("num_external_hit_tokens", True),
    "vllm:prompt_tokens": ("num_prompt_tokens", True),
    "vllm:num_preemptions": ("num_preemptions", True),
    "vllm:num_requests_running": ("num_running", True),
    "vllm:num_requests_waiting": ("num_waiting", True),
    "vllm:kv_cache_usage_perc": ("kv_usage", False),
    "vllm:gpu_cache_usage_perc": ("kv_usage", False),
    "vllm:gpu_prefix_cache_hit_rate": ("hit_rate", False),
    "sglang:prompt_tokens": ("num_queried_tokens", True),
    "sglang:cached_tokens": ("num_hit_tokens", True),
    "sglang:num_running_reqs": ("num_running", True),
    "sglang:num_queue_reqs": ("num_waiting", True),
    "sglang:token_usage": ("kv_usage", False),
    "sglang:cache_hit_rate": ("hit_rate", False),
}
_RATES: Final = ("hit_rate", "kv_usage")
# V0's gauge is of all lookups since start, SGLang's of the last interval.
_RATE_SCOPES: Final = {"vllm": "since-start", "sglang": "recent-requests"}
_POOL_SERIES: Final = "vllm:cache_config_info"
_MAX_SERVERS: Final = 10_000
_MAX_SERIES_CHARACTERS: Final = 10_000


def _recognise(sample: Sample) -> float:
    known = 0
    for line in sample.lines:
        text = line[:2000].decode("utf-8", "replace")
        if text.startswith("#"):
            continue
        match = _SERIES.fullmatch(text)
        if match is not None and match.group(1).partition(":")[0] in _ENGINES:
            known += 1
    return 0.9 if known else 0.0


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    scrape = _Scrape(file)
    for line in text_lines(file):
        if isinstance(line, Skipped):
            yield line
            continue
        file.num_other_lines += 1
        text = line.text
        if text.startswith("#") or len(text) > _MAX_SERIES_CHARACTERS:
            continue
        match = _SERIES.fullmatch(text)
        if match is None:
            continue
        name, labels, value, stamp = match.groups()
        series = (name, labels or "")
        if series in scrape.seen:
            scrape.end()
            scrape = _Scrape(file)
        scrape.add(series, _labels(labels or ""), value, stamp, line.number)
    scrape.end()


class _Scrape:
    """The figures of one scrape, by server."""

    def __init__(self, file: LogFile) -> None:
        self.seen: set[tuple[str, str]] = set()
        self._file = file
        self._figures: dict[tuple[str, str], dict[str, Any]] = {}
        self._lines: dict[tuple[str, str], tuple[int, float | Unknown]] = {}

    def add(
        self,
        series: tuple[str, str],
        labels: Mapping[str, str],
        value: str,
        stamp: str | None,
        line: int,
    ) -> None:
        """Add one series."""
        if len(self.seen) < 10 * _MAX_SERVERS:
            self.seen.add(series)
        name = series[0]
        engine = name.partition(":")[0]
        if name == _POOL_SERIES:
            self._add_pool(labels, line)
            return
        field, is_sum = _FIGURES.get(name.removesuffix("_total"), ("", False))
        number = _number(value)
        if not field or number is None:
            return
        server = ",".join(f"{key}={labels[key]}" for key in _SERVER_LABELS if key in labels)
        key = (engine, server)
        if key not in self._figures and len(self._figures) >= _MAX_SERVERS:
            return
        figures = self._figures.setdefault(key, {})
        time_s = UNKNOWN if stamp is None else int(stamp) / 1000.0
        self._lines.setdefault(key, (line, time_s))
        if field in _RATES:
            figures.setdefault(field, number if 0 <= number <= 1 else UNKNOWN)
            if field == "hit_rate":
                figures["hit_rate_scope"] = _RATE_SCOPES[engine]
        else:
            figures[field] = int(number) + (figures.get(field, 0) if is_sum else 0)

    def end(self) -> None:
        """Hand the figures to the file."""
        for (engine, server), figures in self._figures.items():
            line, time_s = self._lines[engine, server]
            self._file.read_off(
                EngineReading(
                    source=self._file.source(line),
                    time_s=time_s,
                    engine=engine,
                    server=server or UNKNOWN,
                    **figures,
                )
            )

    def _add_pool(self, labels: Mapping[str, str], line: int) -> None:
        def count(name: str) -> int | Unknown:
            value = labels.get(name, "")
            return int(value) if re.fullmatch(r"\d{1,15}", value, re.ASCII) else UNKNOWN

        blocks, size = count("num_gpu_blocks"), count("block_size")
        if blocks is UNKNOWN and size is UNKNOWN:
            return
        known = isinstance(blocks, int) and isinstance(size, int)
        self._file.read_off(
            PoolReading(
                source=self._file.source(line),
                engine="vllm",
                server=labels.get("engine", UNKNOWN),
                num_pool_blocks=blocks,
                block_size=size,
                num_pool_tokens=int(labels["num_gpu_blocks"]) * int(labels["block_size"])
                if known
                else UNKNOWN,
            )
        )


def _labels(text: str) -> dict[str, str]:
    return {match.group(1): match.group(2) for match in _LABEL.finditer(text)}


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 <= number < 2**63 else None


FORMAT = LogFormat(
    title="an engine's metrics as Prometheus text: no requests, its own cache figures",
    fields=("readings",),
    recognise=_recognise,
    read=_read,
)
