"""Helicone exports: rows of its requests, as JSON, JSON lines or CSV.

    {"request_id": …, "request_created_at": …, "model": …, "provider": …, "user_id": …,
     "properties": {"Helicone-Session-Id": …}, "prompt_tokens": …, "prompt_cache_read_tokens": …,
     "request_body": {…}, "response_body": {…}, "cache_reference_id": …}

Bodies are there only where the export was told to include them. `cache_enabled` and
`cache_reference_id` are of Helicone's own cache of responses: what it answered reached no engine.
The answer's own usage wins over the row's counts, which for Anthropic leave cached tokens out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePath
from typing import Any, Final

from prefixaudit.core.request import NO_USAGE, NotReplayable, Request, Source, Usage
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.logs._chats import RESPONSE_CACHE, StoredPrompt, decoded, stored_prompt
from prefixaudit.logs._fields import first_text, known_count, shared_identity
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import RecordError, parsed
from prefixaudit.logs._messages_body import messages_rules
from prefixaudit.logs._openai_body import BodyReader, identity_fields, num_samples, reads_cache
from prefixaudit.logs._openai_response import generated_of, response_objects, usage_of
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._table import rows_of, table_columns
from prefixaudit.logs._times import parse_time

_NO_REFERENCE: Final = "00000000-0000-0000-0000-000000000000"
_REFUSED: Final = frozenset({"400", "401", "403", "404", "413", "422", "429"})
_COLUMNS: Final = frozenset({"request_id", "request_created_at", "model", "provider"})


def _recognise(sample: Sample) -> float:
    if table_columns(sample) >= _COLUMNS:
        return 1.0
    share = sample.share_of_records(_is_row)
    return 0.5 + share / 2 if share else 0.0


def _is_row(record: Mapping[str, Any]) -> bool:
    return "request_created_at" in record and ("request_id" in record or "id" in record)


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    parse = partial(_parse, reader=BodyReader(rules=messages_rules(options)))
    for item in rows_of(file):
        if isinstance(item, tuple):
            yield from parsed(parse, item[1], item[0])
        else:
            yield item


def _parse(row: Any, source: Source, reader: BodyReader) -> tuple[Request, ...]:
    if not isinstance(row, dict) or not _is_row(row):
        raise RecordError("no-prompt", "the record is no row of a Helicone export")
    properties = decoded(row.get("properties", row.get("request_properties")))
    properties = properties if isinstance(properties, dict) else {}
    answer = response_objects(decoded(row.get("response_body")) or {})
    stored = stored_prompt(
        row.get("request_body"), reader, path=first_text((row,), ("request_path", "path"))
    )
    is_cached = row.get("cache_reference_id") not in (None, "", _NO_REFERENCE)
    status = str(row.get("status", row.get("response_status")))
    replaced = None
    if is_cached:
        replaced = RESPONSE_CACHE
    elif status in _REFUSED:
        reason = f"the server refused the request with status {status} before any work"
        replaced = NotReplayable(kind="refused", reason=reason)
    if replaced is not None:
        stored = StoredPrompt((replaced,), stored.body, stored.endpoint)
    is_single = len(stored.prompts) == 1
    identity: dict[str, Known[str]] = dict(identity_fields(stored.body)) if stored.body else {}
    model = first_text((row,), ("request_model", "model", "response_model"))
    user = first_text((row,), ("user_id", "request_user_id")) or first_text(
        (properties,), ("Helicone-User-Id",)
    )
    identity |= {
        name: value
        for name, value in (("model", model), ("user", user))
        if value is not None and (name != "model" or not isinstance(identity.get("model"), str))
    }
    session = first_text((properties, row), ("Helicone-Session-Id", "session_id"))
    request_id = first_text((row,), ("request_id", "id"))
    request_id = request_id or f"{PurePath(source.path).name}:{source.line}"
    return tuple(
        Request(
            request_id=request_id if is_single else f"{request_id}-{place}",
            source=source,
            prompt=prompt,
            arrival_s=parse_time(row.get("request_created_at")),
            identity=shared_identity(identity),
            usage=_usage(row, answer) if is_single and not is_cached else NO_USAGE,
            session_id=session if session is not None else UNKNOWN,
            endpoint=stored.endpoint if stored.endpoint is not None else UNKNOWN,
            generated=generated_of(answer) if is_single and not is_cached else UNKNOWN,
            num_samples=num_samples(stored.body),
            reads_cache=reads_cache(stored.body, stored.endpoint or ""),
            record={**row, "properties": properties},
        )
        for place, prompt in enumerate(stored.prompts)
    )


def _usage(row: Mapping[str, Any], answer: list[Mapping[str, Any]]) -> Usage:
    usage = usage_of(answer)
    if usage != NO_USAGE:
        return usage
    prompt = _count(row, "prompt_tokens")
    cached = _count(row, "prompt_cache_read_tokens")
    written = _count(row, "prompt_cache_write_tokens")
    is_outside = False
    if isinstance(prompt, int) and isinstance(cached, int):
        is_outside = "anthropic" in str(row.get("provider")).lower() or cached > prompt
        if is_outside:
            prompt += cached + (written if isinstance(written, int) else 0)
    return Usage(
        num_prompt_tokens=prompt,
        num_cached_tokens=cached,
        num_completion_tokens=_count(row, "completion_tokens"),
        counted_outside=is_outside,
    )


def _count(row: Mapping[str, Any], name: str) -> Known[int]:
    value = row.get(name, UNKNOWN)
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < 20 else UNKNOWN
    return UNKNOWN if value is UNKNOWN else known_count({name: value}, name)


FORMAT = LogFormat(
    title="Helicone exports: JSON, JSON lines or CSV",
    fields=(
        "request_id",
        "arrival_s",
        "session_id",
        "endpoint",
        "messages",
        "prompt",
        "usage",
        "generated",
        "model",
        "user",
    ),
    recognise=_recognise,
    read=_read,
)
