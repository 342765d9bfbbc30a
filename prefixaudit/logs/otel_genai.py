"""OpenTelemetry GenAI spans as OTLP JSON: an export request a line, or one object or array.

Spans of calls of a model are requests; all others (HTTP, agents, tools, embeddings) are set aside.
Names of all times are taken: `gen_ai.usage.input_tokens` and `.prompt_tokens`,
`gen_ai.input.messages` {role, parts} and `gen_ai.prompt.0.content`, attributes and events. Input
tokens include cached ones. 64-bit integers are text in OTLP JSON.

Messages become OpenAI-shaped; a tool call's arguments are an object here, so their text is made
anew and may differ from what the model wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

from prefixaudit.core.request import (
    ChatMessages,
    Generated,
    PromptInput,
    RawText,
    Request,
    Skipped,
    Source,
    Usage,
)
from prefixaudit.core.unknown import UNKNOWN, Known, Unknown
from prefixaudit.logs._chats import NOT_STORED, decoded, endpoint_of_prompt, not_whole
from prefixaudit.logs._fields import first_text, shared_identity
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import Aside, LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import RecordError, json_records, parsed
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._otel_attributes import attributes_of, count_of
from prefixaudit.logs._otel_messages import indexed_messages, messages_of, system_of
from prefixaudit.logs._times import parse_time

_CALLS: Final = frozenset({"chat", "text_completion", "generate_content", "completion"})
_PROMPT_TOKENS: Final = (
    "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens",
    "llm.token_count.prompt",
)  # fmt: skip
_CACHED_TOKENS: Final = (
    "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.cached_tokens", "gen_ai.usage.input_tokens.cached",
    "llm.token_count.prompt_details.cache_read",
)  # fmt: skip
_CREATED_TOKENS: Final = (
    "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens",
)  # fmt: skip
_COMPLETION_TOKENS: Final = (
    "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens",
    "llm.usage.completion_tokens", "llm.token_count.completion",
)  # fmt: skip
_MODELS: Final = (
    "gen_ai.request.model", "gen_ai.response.model", "llm.request.model", "llm.model_name",
)  # fmt: skip
_IDS: Final = ("gen_ai.request.id", "gen_ai.response.id")
_SESSIONS: Final = ("gen_ai.conversation.id", "session.id", "gen_ai.session.id")
_USERS: Final = ("enduser.id", "user.id", "gen_ai.user.id")


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(_holds_spans)
    return 0.5 + share / 2 if share else 0.0


def _holds_spans(record: Mapping[str, Any]) -> bool:
    return any(
        isinstance(record.get(name), list)
        for name in ("resourceSpans", "resource_spans", "scopeSpans", "scope_spans")
    ) or ("spanId" in record and "traceId" in record and "attributes" in record)


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    seen: set[tuple[Any, Any]] = set()
    for item in json_records(file):
        if isinstance(item, Skipped):
            yield item
            continue
        source, record = item
        spans = list(_spans(record)) if isinstance(record, dict) else []
        if not spans:
            yield Skipped(source=source, kind="no-prompt", reason="the record holds no spans")
            continue
        # A span is a record; the export request that carries them isn't.
        file.num_records += len(spans) - 1
        for span, resource in spans:
            yield from _of_span(span, resource, source, seen)


def _spans(record: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    if "spanId" in record:
        yield record, attributes_of(_object(record, "resource").get("attributes"))
        return
    groups = _objects(record, "resourceSpans", "resource_spans")
    for group in groups or [record]:
        resource = attributes_of(_object(group, "resource").get("attributes"))
        for scope in _objects(group, "scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
            for span in _objects(scope, "spans"):
                yield span, resource


def _of_span(
    span: Mapping[str, Any],
    resource: Mapping[str, Any],
    source: Source,
    seen: set[tuple[Any, Any]],
) -> Iterator[ReadItem]:
    attributes = attributes_of(span.get("attributes"))
    if not _is_call(attributes):
        yield Aside("other-span")
        return
    trace_id, span_id = str(span.get("traceId")), str(span.get("spanId"))
    if (trace_id, str(span.get("parentSpanId"))) in seen:
        yield Aside("same-call")  # the same call as its caller saw it, or the engine within it
        return
    seen.add((trace_id, span_id))

    def parse(record: Any, source: Source) -> tuple[Request, ...]:
        return (_request(record, attributes, resource, source),)

    yield from parsed(parse, span, source)


def _is_call(attributes: Mapping[str, Any]) -> bool:
    operation = attributes.get("gen_ai.operation.name", attributes.get("llm.request.type"))
    if operation is not None:
        return str(operation) in _CALLS
    if attributes.get("openinference.span.kind") not in (None, "LLM"):
        return False
    names = (*_PROMPT_TOKENS, "gen_ai.input.messages", "gen_ai.prompt", "gen_ai.prompt.0.content")
    return any(name in attributes for name in names)


def _request(
    span: Mapping[str, Any],
    attributes: Mapping[str, Any],
    resource: Mapping[str, Any],
    source: Source,
) -> Request:
    known = {**_of_events(span), **attributes}
    prompt = _prompt(known)
    model = first_text((known,), _MODELS)
    user = first_text((known, resource), _USERS)
    own = first_text((known,), _IDS) or first_text((span,), ("spanId",))
    session = first_text((known, resource), _SESSIONS)
    identity: dict[str, Known[str]] = {
        name: value for name, value in (("model", model), ("user", user)) if value is not None
    }
    return Request(
        request_id=own or f"{PurePath(source.path).name}:{source.line}",
        source=source,
        prompt=prompt,
        arrival_s=parse_time(span.get("startTimeUnixNano", span.get("start_time_unix_nano"))),
        identity=shared_identity(identity),
        usage=_usage(known),
        session_id=session if session is not None else UNKNOWN,
        endpoint=endpoint_of_prompt(prompt) or UNKNOWN,
        generated=_generated(known),
        record={"span": span, "resource": dict(resource), **resource, **attributes},
    )


def _of_events(span: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of events that hold what later became attributes of the span.

    The oldest events were a message each (`gen_ai.user.message`), with its text in the attributes.
    """
    found: dict[str, Any] = {}
    messages: list[Any] = []
    for event in _objects(span, "events"):
        inner = attributes_of(event.get("attributes"))
        name = str(event.get("name"))
        role = name.removeprefix("gen_ai.").removesuffix(".message")
        if name == f"gen_ai.{role}.message":
            body = decoded(inner.get("gen_ai.event.content")) or inner
            messages.append({"role": role, **(body if isinstance(body, dict) else {})})
        elif name.startswith("gen_ai."):
            found |= inner
    return {"gen_ai.input.messages": messages, **found} if messages else found


def _prompt(known: Mapping[str, Any]) -> PromptInput:
    stored: Any = None
    for name in ("gen_ai.input.messages", "gen_ai.prompt", "llm.input_messages"):
        if known.get(name) is not None:
            stored = decoded(known[name])
            break
    if stored is None:
        stored = indexed_messages(known, "gen_ai.prompt") or indexed_messages(
            known, "llm.input_messages"
        )
    if not stored:
        return NOT_STORED
    system = decoded(known.get("gen_ai.system_instructions"))
    tools = decoded(known.get("gen_ai.tool.definitions", known.get("gen_ai.request.tools")))
    problem = not_whole([stored, system])
    if problem is not None:
        return problem
    if isinstance(stored, str):
        return RawText(text=stored)
    messages = system_of(system) + messages_of(stored)
    if not messages:
        raise RecordError("no-prompt", "the span's messages have a shape that isn't known")
    return ChatMessages(messages=messages, tools=_tools(tools))


def _tools(tools: Any) -> list[Mapping[str, Any]] | None:
    if not isinstance(tools, list) or not tools:
        return None
    return [
        tool
        if "function" in tool
        else {
            "type": "function",
            "function": {name: value for name, value in tool.items() if name != "type"},
        }
        for tool in tools
        if isinstance(tool, dict)
    ]


def _usage(known: Mapping[str, Any]) -> Usage:
    prompt = count_of(known, _PROMPT_TOKENS)
    cached = count_of(known, _CACHED_TOKENS)
    if isinstance(prompt, int) and isinstance(cached, int) and cached > prompt:
        # More was cached than there was: the writer left it out of the count, against the rule.
        created = count_of(known, _CREATED_TOKENS)
        prompt += cached + (created if isinstance(created, int) else 0)
    return Usage(
        num_prompt_tokens=prompt,
        num_cached_tokens=cached,
        num_completion_tokens=count_of(known, _COMPLETION_TOKENS),
    )


def _generated(known: Mapping[str, Any]) -> Generated | Unknown:
    stored = decoded(known.get("gen_ai.output.messages", known.get("gen_ai.completion")))
    if stored is None:
        stored = indexed_messages(known, "gen_ai.completion")
    if isinstance(stored, str):
        return RawText(text=stored, add_special_tokens=False)
    messages = messages_of(stored) if stored else []
    if len(messages) == 1 and set(messages[0]) <= {"role", "content", "finish_reason"}:
        content = messages[0].get("content")
        if isinstance(content, str) and content:
            return RawText(text=content, add_special_tokens=False)
    return UNKNOWN


def _object(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _objects(record: Mapping[str, Any], *names: str) -> list[Mapping[str, Any]]:
    for name in names:
        value = record.get(name)
        if isinstance(value, list):
            return [item for item in value if isinstance(item, dict)]
    return []


FORMAT = LogFormat(
    title="OpenTelemetry GenAI spans (OTLP JSON)",
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
)
