"""Per-request rows as JSON lines: one for every request or skipped record, in log order."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import Any

import orjson

from prefixaudit.core.report import Report, RequestRows, TierRows
from prefixaudit.json_text import encodable

_CHUNK_ROWS = 4096


def per_request_lines(report: Report) -> Iterator[bytes]:
    """Yield JSON lines in chunks of rows. What isn't known is null."""
    rows = report.rows
    tiers = () if report.audit is None else report.audit.rows
    chunk: list[bytes] = []
    for index in range(len(rows.position)):
        position = int(rows.position[index])
        if position >= 0:
            row = _request_row(rows, index, position)
            row["tiers"] = [_tier_row(tier, position) for tier in tiers]
        else:
            skipped = report.log.skipped[-1 - position]
            row = _skipped_row(rows, index, f"{skipped.kind}: {skipped.reason}")
        chunk.append(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        if len(chunk) == _CHUNK_ROWS:
            yield b"".join(chunk)
            chunk.clear()
    yield b"".join(chunk)


def _tier_row(tier: TierRows, position: int) -> dict[str, Any]:
    return {
        "tier": encodable(tier.name),
        "num_cached_tokens": int(tier.num_cached_tokens[position]),
        "num_safe_cached_tokens": int(tier.num_safe_cached_tokens[position]),
        "num_unsafe_tokens": int(tier.num_unsafe_tokens[position]),
    }


def _source(rows: RequestRows, index: int) -> str:
    return encodable(f"{rows.paths[rows.path[index]]}:{rows.line[index]}")


def _request_row(rows: RequestRows, index: int, position: int) -> dict[str, Any]:
    lookups = rows.lookups
    donors = range(int(lookups.donor_offsets[position]), int(lookups.donor_offsets[position + 1]))
    reported = int(rows.num_cached_tokens_reported[position])
    arrival_s = float(rows.arrival_s[position])
    flops, saved = rows.prefill_flops, rows.prefill_flops_saved
    return {
        "index": index,
        "request_id": encodable(rows.request_ids[position]),
        "source": _source(rows, index),
        "arrival_s": None if isnan(arrival_s) else arrival_s,
        "num_prompt_tokens": int(rows.num_prompt_tokens[position]),
        "num_cached_tokens": int(lookups.num_cached_tokens[position]),
        "num_cached_tokens_reported": None if reported < 0 else reported,
        "donors": [
            {
                "request_id": None
                if lookups.donors[place] < 0
                else encodable(rows.request_ids[lookups.donors[place]]),
                "num_tokens": int(lookups.donor_num_tokens[place]),
            }
            for place in donors
        ],
        "prefill_flops": None if flops is None else flops[position].item(),
        "prefill_flops_saved": None if saved is None else saved[position].item(),
        "tiers": [],
        "error": None,
    }


def _skipped_row(rows: RequestRows, index: int, error: str) -> dict[str, Any]:
    request_id = rows.row_request_ids.get(index)
    return {
        "index": index,
        "request_id": None if request_id is None else encodable(request_id),
        "source": _source(rows, index),
        "arrival_s": None,
        "num_prompt_tokens": None,
        "num_cached_tokens": None,
        "num_cached_tokens_reported": None,
        "donors": None,
        "prefill_flops": None,
        "prefill_flops_saved": None,
        "tiers": [],
        "error": encodable(error),
    }
