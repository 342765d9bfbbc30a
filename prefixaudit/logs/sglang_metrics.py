"""SGLang's `--export-metrics-to-file`: a finished request a JSON line, its parameters as JSON text.

    {"request_parameters": "{\\"rid\\": …, \\"text\\": …}", "id": …, "prompt_tokens": 9,
     "cached_tokens": 8, "completion_tokens": 1, "e2e_latency": 0.2, …}

The file's lines have no time of their own, only the file's name has an hour; newer releases write
when the request came. Null parameters aren't written, and neither are those that the server's
logging level leaves out: an adapter that isn't named is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import orjson

from prefixaudit.core.request import Request, Source
from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.logs._fields import first_text, shared_identity
from prefixaudit.logs._format import LogFormat, Sample
from prefixaudit.logs._json_lines import RecordError, read_json_lines
from prefixaudit.logs._sglang_objects import (
    checked,
    identity_fields,
    parts_of,
    reads_cache,
    session_of,
    usage_of,
)
from prefixaudit.logs._times import parse_time


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(_is_metrics_record)
    return 0.6 + 0.35 * share if share else 0.0


def _is_metrics_record(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("request_parameters"), str) and "prompt_tokens" in record


def _parse(record: Any, source: Source) -> tuple[Request, ...]:
    if not isinstance(record, dict) or not isinstance(record.get("request_parameters"), str):
        raise RecordError("no-prompt", "the record has no `request_parameters`")
    try:
        parameters = orjson.loads(record["request_parameters"])
    except orjson.JSONDecodeError:
        raise RecordError("invalid-json", "`request_parameters` is no JSON text") from None
    if not isinstance(parameters, dict):
        raise RecordError("no-prompt", "`request_parameters` holds no object")
    parts = parts_of(parameters)
    usage = usage_of(record)
    # A finished prompt is a line of its own; of a batch the line doesn't say which.
    own = [part for part in parts if part.rid is not None and part.rid == record.get("id")]
    part = own[0] if own else parts[0]
    if len(parts) > 1 and not own:
        raise RecordError("ambiguous-batch", "the line doesn't say which prompt of a batch it is")
    return (
        Request(
            request_id=part.rid
            or first_text((record,), ("id",))
            or f"{PurePath(source.path).name}:{source.line}",
            source=source,
            prompt=checked(part, usage),
            arrival_s=_arrival(record, parameters),
            identity=shared_identity(identity_fields(parameters)),
            usage=usage,
            session_id=session_of(parameters),
            reads_cache=reads_cache(parameters),
            record=parameters,
        ),
    )


def _arrival(*places: Mapping[str, Any]) -> float | Unknown:
    for place in places:
        for name in ("request_received_ts", "received_time", "request_received_time"):
            moment = parse_time(place.get(name))
            # Some releases give a monotonic clock here, which counts from the machine's start.
            if moment is not UNKNOWN and moment > 1e9:
                return moment
    return UNKNOWN


FORMAT = LogFormat(
    title="SGLang's exported request metrics",
    fields=(
        "request_id",
        "arrival_s",
        "session_id",
        "prompt",
        "prompt_token_ids",
        "usage",
        "lora_path",
        "cache_salt",
        "extra_key",
    ),
    recognise=_recognise,
    read=read_json_lines(_parse),
)
