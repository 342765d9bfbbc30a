"""Envoy AI gateway access logs: a JSON line a request, with keys that hold dots.

    {"start_time": "2026-…Z", "gen_ai.request.model": …, "gen_ai.usage.input_tokens": 512,
     "llm_cached_input_token": 448, "session.id": …, "x-request-id": …, "response_code": 200}

Which keys there are is the operator's choice; values may be text, null or "-" for missing. There
is no prompt: what the servers reported is all that can be said.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

from prefixaudit.core.request import NotReplayable, Request, Source, Usage
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.logs._fields import first_text, shared_identity
from prefixaudit.logs._format import LogFormat, Sample
from prefixaudit.logs._json_lines import RecordError, read_json_lines
from prefixaudit.logs._otel_attributes import count_of
from prefixaudit.logs._times import parse_time

_PROMPT_TOKENS: Final = ("gen_ai.usage.input_tokens", "llm_input_token", "llm_input_tokens")
_CACHED_TOKENS: Final = (
    "gen_ai.usage.cached_input_tokens", "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cached_tokens", "llm_cached_input_token", "llm_cached_input_tokens",
)  # fmt: skip
_COMPLETION_TOKENS: Final = ("gen_ai.usage.output_tokens", "llm_output_token", "llm_output_tokens")
_MODELS: Final = ("gen_ai.request.model", "x-ai-eg-model", "gen_ai.response.model")
_USERS: Final = ("user.id", "enduser.id", "x-user-id")
_PROMPT: Final = NotReplayable(kind="no-prompt", reason="an access log holds no prompts")
_REFUSED: Final = NotReplayable(
    kind="refused", reason="the server refused the request before any work"
)
_REFUSED_CODES: Final = frozenset({"400", "401", "403", "404", "405", "413", "422", "429"})


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(_is_line)
    return 0.5 + share / 2 if share else 0.0


def _is_line(record: Mapping[str, Any]) -> bool:
    is_access_log = any(
        name in record
        for name in ("response_code", "upstream_host", "start_time", "duration", "x-request-id")
    )
    names = (*_PROMPT_TOKENS, *_MODELS[:2])
    return is_access_log and any(name in record for name in names)


def _parse(record: Any, source: Source) -> tuple[Request, ...]:
    if not isinstance(record, dict):
        raise RecordError("no-prompt", "the record is no line of an access log")
    line = {name: None if value == "-" else value for name, value in record.items()}
    if not _is_line(line):
        raise RecordError("no-prompt", "the line names neither a model nor its tokens")
    model, user = first_text((line,), _MODELS), first_text((line,), _USERS)
    identity: dict[str, Known[str]] = {
        name: value for name, value in (("model", model), ("user", user)) if value is not None
    }
    session = first_text((line,), ("session.id", "gen_ai.conversation.id", "x-session-id"))
    request_id = first_text((line,), ("x-request-id", "request_id", "x_request_id"))
    code = first_text((line,), ("response_code",))
    return (
        Request(
            request_id=request_id or f"{PurePath(source.path).name}:{source.line}",
            source=source,
            prompt=_REFUSED if code in _REFUSED_CODES else _PROMPT,
            arrival_s=parse_time(line.get("start_time")),
            identity=shared_identity(identity),
            usage=Usage(
                num_prompt_tokens=count_of(line, _PROMPT_TOKENS),
                num_cached_tokens=count_of(line, _CACHED_TOKENS),
                num_completion_tokens=count_of(line, _COMPLETION_TOKENS),
            ),
            session_id=session if session is not None else UNKNOWN,
            record=record,
        ),
    )


FORMAT = LogFormat(
    title="Envoy AI gateway access logs: usage only",
    fields=("request_id", "arrival_s", "session_id", "usage", "model", "user"),
    recognise=_recognise,
    read=read_json_lines(_parse),
)
