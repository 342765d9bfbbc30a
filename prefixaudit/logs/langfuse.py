"""Langfuse exports: observations and traces, of the blob export or the API (camelCase).

    {"id": …, "trace_id": …, "type": "GENERATION", "start_time": "2026-03-02 08:00:00.000000",
     "provided_model_name": …, "input": …, "output": …, "usage_details": {…}, "user_id": …}

Only GENERATION rows are requests. User and session stand on the row, or on its trace: traces may
hold their observations, or stand in lines or files of their own, in any order. `input` is text
that holds JSON, or an object; whether its count includes cached tokens depends on who wrote it, and
is decided by `total`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

from prefixaudit.core.request import RawText, Request, Skipped, Source, Usage
from prefixaudit.core.unknown import UNKNOWN, Known, Unknown
from prefixaudit.logs._chats import decoded, stored_prompt
from prefixaudit.logs._fields import first_text, known_count, shared_identity
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import Aside, LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import parsed
from prefixaudit.logs._messages_body import messages_rules
from prefixaudit.logs._openai_body import BodyReader, identity_fields
from prefixaudit.logs._openai_response import generated_of, response_objects
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._table import rows_of, table_columns
from prefixaudit.logs._times import parse_time

_TYPES: Final = frozenset(
    {"GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR",
     "EMBEDDING", "GUARDRAIL"}
)  # fmt: skip
_CACHED: Final = (
    "input_cached_tokens", "cache_read_input_tokens", "input_cache_read", "input_cached",
    "cached_tokens", "prompt_cached_tokens",
)  # fmt: skip
_INPUT: Final = ("input", "input_tokens", "prompt_tokens", "promptTokens")
_OUTPUT: Final = ("output", "output_tokens", "completion_tokens", "completionTokens")
_TOTAL: Final = ("total", "total_tokens", "totalTokens")

Owner = tuple[str | None, str | None]


def _recognise(sample: Sample) -> float:
    columns = table_columns(sample)
    if {"id", "type", "input", "output"} <= columns and columns & {"trace_id", "traceId"}:
        return 1.0
    share = sample.share_of_records(lambda record: _is_observation(record) or _is_trace(record))
    return 0.5 + share / 2 if share else 0.0


def _is_observation(record: Mapping[str, Any]) -> bool:
    return str(record.get("type")) in _TYPES and ("trace_id" in record or "traceId" in record)


def _is_trace(record: Mapping[str, Any]) -> bool:
    return (
        "id" in record
        and ("input" in record or "observations" in record)
        and ("timestamp" in record or "created_at" in record or "createdAt" in record)
        and any(name in record for name in ("userId", "user_id"))
        and any(name in record for name in ("sessionId", "session_id"))
        and "messages" not in record
        and "type" not in record
    )


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    reader = BodyReader(rules=messages_rules(options))
    owners: dict[str, Owner] = file.memory.setdefault("langfuse-traces", {})
    for item in rows_of(file):
        if isinstance(item, Skipped):
            yield item
            continue
        source, record = item
        if not isinstance(record, dict):
            yield _no_row(source)
        elif _is_observation(record):
            yield from _observation(record, source, reader, owners)
        elif _is_trace(record):
            owners[str(record["id"])] = _owner(record)
            inner = record.get("observations")
            rows = (
                [row for row in inner if isinstance(row, dict)] if isinstance(inner, list) else []
            )
            if not any(_is_observation(row) for row in rows):
                yield Aside("trace")
                continue
            file.num_records += len(rows) - 1  # the rows are the records, the trace isn't
            for row in rows:
                yield from _observation({**row, "traceId": record["id"]}, source, reader, owners)
        else:
            yield _no_row(source)


def _no_row(source: Source) -> Skipped:
    return Skipped(
        source=source, kind="no-prompt", reason="the record is neither an observation nor a trace"
    )


def _observation(
    row: dict[str, Any], source: Source, reader: BodyReader, owners: Mapping[str, Owner]
) -> Iterator[ReadItem]:
    if row.get("type") != "GENERATION":
        yield Aside("other-observation")
        return

    def parse(record: Any, source: Source) -> tuple[ReadItem, ...]:
        return _generation(record, source, reader, owners)

    yield from parsed(parse, row, source)


def _generation(
    row: Mapping[str, Any], source: Source, reader: BodyReader, owners: Mapping[str, Owner]
) -> tuple[Request, ...]:
    trace_id = first_text((row,), ("trace_id", "traceId"))
    user, session = _owner(row)
    of_trace = owners.get(trace_id or "", (None, None))
    user, session = user or of_trace[0], session or of_trace[1]
    parameters = _parameters(row)
    stored = stored_prompt(row.get("input"), reader, extra=parameters)
    is_single = len(stored.prompts) == 1
    model = first_text((row,), ("provided_model_name", "providedModelName", "model"))
    identity: dict[str, Known[str]] = dict(identity_fields(stored.body)) if stored.body else {}
    identity |= {
        name: value for name, value in (("model", model), ("user", user)) if value is not None
    }
    request_id = first_text((row,), ("id",)) or f"{PurePath(source.path).name}:{source.line}"
    return tuple(
        Request(
            request_id=request_id if is_single else f"{request_id}-{place}",
            source=source,
            prompt=prompt,
            arrival_s=parse_time(row.get("start_time", row.get("startTime"))),
            identity=shared_identity(identity),
            usage=_usage(row) if is_single else Usage(),
            session_id=session if session is not None else UNKNOWN,
            endpoint=stored.endpoint if stored.endpoint is not None else UNKNOWN,
            generated=_generated(row.get("output")) if is_single else UNKNOWN,
            record=row,
        )
        for place, prompt in enumerate(stored.prompts)
    )


def _owner(row: Mapping[str, Any]) -> Owner:
    return first_text((row,), ("user_id", "userId")), first_text(
        (row,), ("session_id", "sessionId")
    )


def _parameters(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of the body Langfuse keeps among the model's parameters."""
    value = decoded(row.get("model_parameters", row.get("modelParameters")))
    if not isinstance(value, dict):
        return {}
    kept = {
        name: decoded(value[name]) for name in ("tools", "chat_template_kwargs") if name in value
    }
    return {name: item for name, item in kept.items() if isinstance(item, list | dict)}


def _usage(row: Mapping[str, Any]) -> Usage:
    for name in ("usage_details", "usageDetails", "provided_usage_details", "usage"):
        details = decoded(row.get(name))
        if isinstance(details, dict) and details:
            return _counted(details)
    return Usage()


def _counted(details: Mapping[str, Any]) -> Usage:
    cached = _first(details, _CACHED)
    given = _first(details, _INPUT)
    output = _first(details, _OUTPUT)
    return Usage(
        num_prompt_tokens=_prompt_tokens(details, given, cached),
        num_cached_tokens=cached,
        num_completion_tokens=output,
    )


def _prompt_tokens(details: Mapping[str, Any], given: Known[int], cached: Known[int]) -> Known[int]:
    """Decide whether the input count includes what was cached, by the total of all counts."""
    if not isinstance(given, int):
        return given
    apart = sum(
        count
        for name in details
        if name not in _INPUT and ("input" in name or "cache" in name or name in _CACHED)
        and isinstance(count := known_count(details, name), int)
    )  # fmt: skip
    if not apart:
        return given
    total = _first(details, _TOTAL)
    outputs = sum(
        count
        for name in details
        if (name in _OUTPUT or name.startswith("output_"))
        and isinstance(count := known_count(details, name), int)
    )
    plain_output = _first(details, _OUTPUT)
    candidates = {outputs, plain_output if isinstance(plain_output, int) else 0}
    if isinstance(total, int):
        for prompt in (given, given + apart):
            if any(total == prompt + count for count in candidates):
                return prompt
        return UNKNOWN
    # Without a total only the impossible can be told: more was cached than there was.
    return given + apart if isinstance(cached, int) and cached > given else UNKNOWN


def _first(details: Mapping[str, Any], names: tuple[str, ...]) -> Known[int]:
    for name in names:
        if name in details:
            return known_count(details, name)
    return UNKNOWN


def _generated(output: Any) -> RawText | Unknown:
    value = decoded(output)
    if isinstance(value, str):
        return RawText(text=value, add_special_tokens=False)
    if isinstance(value, dict):
        choice = value if "choices" in value else {"choices": [{"message": value}]}
        found = generated_of(response_objects(choice))
        return found if isinstance(found, RawText) else UNKNOWN
    return UNKNOWN


FORMAT = LogFormat(
    title="Langfuse exports: observations and traces",
    fields=(
        "request_id",
        "arrival_s",
        "session_id",
        "messages",
        "prompt",
        "usage",
        "generated",
        "model",
        "user",
    ),
    recognise=_recognise,
    read=_read,
    looks_back=lambda sample: sample.share_of_records(_is_trace) > 0,
)
