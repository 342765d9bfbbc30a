"""LMCache agent traces: `timestamp` (µs), `input`, `output`, `session_id`, a JSON line each.

The input is the flattened text of an agent's prompt. Special tokens aren't added: the text was
rendered before it was logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from prefixaudit.core.request import RawText, Request, Source
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.logs._fields import known_text
from prefixaudit.logs._format import LogFormat, Sample
from prefixaudit.logs._json_lines import RecordError, read_json_lines
from prefixaudit.logs._times import parse_time


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(_is_agent_record)
    return 0.4 + share / 2 if share else 0.0


def _is_agent_record(record: Mapping[str, Any]) -> bool:
    return (
        isinstance(record.get("input"), str)
        and isinstance(record.get("output"), str)
        and "session_id" in record
        and "timestamp" in record
    )


def _parse(record: Any, source: Source) -> tuple[Request, ...]:
    if not isinstance(record, dict) or not isinstance(record.get("input"), str):
        raise RecordError("no-prompt", "the record has no `input` text")
    output = record.get("output")
    return (
        Request(
            request_id=f"{PurePath(source.path).name}:{source.line}",
            source=source,
            prompt=RawText(text=record["input"], add_special_tokens=False),
            arrival_s=parse_time(record.get("timestamp")),
            session_id=known_text(record, "session_id"),
            generated=RawText(text=output, add_special_tokens=False)
            if isinstance(output, str)
            else UNKNOWN,
            record=record,
        ),
    )


FORMAT = LogFormat(
    title="LMCache agent trace: flattened prompts and answers",
    fields=("arrival_s", "session_id", "prompt", "generated"),
    recognise=_recognise,
    read=read_json_lines(_parse),
)
