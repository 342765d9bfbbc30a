"""SGLang's request log, text or JSON, at any level; and what its scheduler says of the cache.

A request is one record: its line when it was received and its line when it was finished, joined
by `rid`. It stands where it was received. Lines of the scheduler are no records but readings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from prefixaudit.core.reading import EngineReading, PoolReading
from prefixaudit.core.request import NO_USAGE, NotReplayable, PromptInput, Request, Skipped
from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.logs._fields import shared_identity
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import RecordError
from prefixaudit.logs._openai_body import CHAT, BodyReader, is_body
from prefixaudit.logs._openai_body import identity_fields as body_fields
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._pool_lines import pool_figures
from prefixaudit.logs._sglang_lines import MARKERS, Batch, Event, is_event, line_of
from prefixaudit.logs._sglang_objects import (
    checked,
    generated_of,
    identity_fields,
    meta_of,
    parts_of,
    reads_cache,
    session_of,
    usage_of,
)
from prefixaudit.logs._text_lines import start_of, text_lines

_MAX_HELD: Final = 2048
_MAX_HELD_BYTES: Final = 2**27
_NOT_LOGGED: Final = ("cut-prompt", "no-prompt-logged")


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(is_event)
    if share:
        return 0.6 + 0.35 * share
    for line in sample.lines:
        text = start_of(line)
        try:
            found = line_of(text)
        except RecordError:
            found = None
            if MARKERS.search(text):
                return 0.95
        if found is not None:
            return 0.95
    return 0.0


@dataclass(slots=True, kw_only=True)
class _Held:
    line: int
    received: Event | None
    finished: Event | None
    num_bytes: int


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    reader = _Reader(file)
    is_noted = False
    for line in text_lines(file):
        if isinstance(line, Skipped):
            yield line
            continue
        try:
            found = line_of(line.text)
            if found is None and MARKERS.search(line.text):
                raise RecordError("damaged-line", "the line speaks of a request, but is damaged")
            if isinstance(found, Event) and not line.is_text:
                reason = "the line of a request has bytes that are no UTF-8"
                raise RecordError("invalid-utf8", reason)
        except RecordError as error:
            file.num_records += 1
            kind = "cut-tail" if line.is_tail and error.kind == "cut-line" else error.kind
            yield Skipped(source=file.source(line.number), kind=kind, reason=error.reason)
            continue
        if isinstance(found, Event):
            if not is_noted:
                file.note("the log's times are local and have no zone: they are taken as UTC")
                is_noted = True
            yield from reader.take(found, line.number, len(line.text))
            continue
        file.num_other_lines += 1
        if isinstance(found, Batch):
            reader.read_batch(found, line.number)
        elif figures := pool_figures(line.text[:4000]):
            file.read_off(
                PoolReading(
                    source=file.source(line.number),
                    engine="sglang",
                    num_pool_tokens=figures.get("num_tokens", UNKNOWN),
                    num_pool_blocks=figures.get("num_blocks", UNKNOWN),
                    block_size=figures.get("block_size", UNKNOWN),
                )
            )
    yield from reader.rest()


class _Reader:
    """Joins the events of one file, and adds up its batches."""

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self._held: dict[int, _Held] = {}
        self._by_rid: dict[str, int] = {}
        self._num_bytes = 0
        self._next = 0
        self._bodies: dict[str, Event] = {}
        self._computed: Counter[str] = Counter()
        self._cached: Counter[str] = Counter()

    def take(self, event: Event, line: int, num_bytes: int) -> Iterator[ReadItem]:
        """Add an event; yield the requests for which nothing more is expected."""
        if event.obj is None:
            # The same request comes again, as the engine takes it.
            self._file.num_other_lines += 1
            if event.rid is not None and len(self._bodies) < _MAX_HELD:
                self._bodies[event.rid] = event
            return
        key = event.rid if event.rid is not None else _first_rid(event.obj)
        number = self._by_rid.get(key) if key is not None else None
        held = self._held.get(number) if number is not None else None
        if held is not None and event.kind == "finish" and held.finished is None:
            held.finished = event
            held.num_bytes += num_bytes
            self._file.num_other_lines += 1
        else:
            held = _Held(
                line=line,
                received=event if event.kind == "receive" else None,
                finished=event if event.kind == "finish" else None,
                num_bytes=num_bytes,
            )
            self._held[self._next] = held
            if key is not None:
                self._by_rid[key] = self._next
            self._next += 1
        self._num_bytes += num_bytes
        while self._held:
            first = next(iter(self._held.values()))
            is_full = len(self._held) > _MAX_HELD or self._num_bytes > _MAX_HELD_BYTES
            if first.finished is None and not is_full:
                return
            yield from self._leave(next(iter(self._held)))

    def rest(self) -> Iterator[ReadItem]:
        """Yield what is still held, at the end of the file."""
        for number in list(self._held):
            yield from self._leave(number)

    def read_batch(self, batch: Batch, line: int) -> None:
        """Add a batch to its scheduler's sums; one request comes in several, chunk by chunk."""
        self._computed[batch.rank] += batch.num_new_tokens
        self._cached[batch.rank] += batch.num_cached_tokens
        self._file.read_off(
            EngineReading(
                source=self._file.source(line),
                time_s=batch.time_s,
                engine="sglang",
                server=batch.rank or UNKNOWN,
                num_computed_tokens=self._computed[batch.rank],
                num_cached_tokens=self._cached[batch.rank],
            )
        )

    def _leave(self, number: int) -> list[ReadItem]:
        held = self._held.pop(number)
        self._num_bytes -= held.num_bytes
        event = held.received or held.finished
        assert event is not None
        assert event.obj is not None
        key = event.rid if event.rid is not None else _first_rid(event.obj)
        if key is not None and self._by_rid.get(key) == number:
            del self._by_rid[key]
        self._file.num_records += 1
        source = self._file.source(held.line)
        try:
            return list(self._requests(held, event, event.obj))
        except RecordError as error:
            return [Skipped(source=source, kind=error.kind, reason=error.reason)]

    def _requests(self, held: _Held, event: Event, obj: Mapping[str, Any]) -> Iterator[Request]:
        # What was finished may hold more: the engine fills in ids and an adapter's id.
        parts = parts_of(obj)
        later = held.finished.obj if held.finished is not None else None
        if later is not None and all(isinstance(p.prompt, NotReplayable) for p in parts):
            parts = parts_of(later)
        out = held.finished.out if held.finished is not None else None
        outs = out if isinstance(out, list) else [out]
        metas = meta_of(out)
        body = self._bodies.pop(event.rid, None) if event.rid is not None else None
        identity = identity_fields(obj)
        for name, value in (identity_fields(later) if later is not None else {}).items():
            identity.setdefault(name, value)
        if body is not None and body.body is not None and is_body(body.body):
            for name, value in body_fields(body.body).items():
                identity.setdefault(name, value)
        for place, part in enumerate(parts):
            meta = metas[place] if place < len(metas) else {}
            usage = usage_of(meta) if len(metas) in (0, len(parts)) else NO_USAGE
            prompt = checked(part, usage)
            if body is not None and len(parts) == 1:
                prompt = _from_body(prompt, body)
            request_id = (
                part.rid
                or str(meta.get("id") or "")
                or (
                    f"{PurePath(self._file.path).name}:{held.line}"
                    + (f"-{place}" if len(parts) > 1 else "")
                )
            )
            yield Request(
                request_id=request_id,
                source=self._file.source(held.line),
                prompt=prompt,
                arrival_s=_arrival(held, meta),
                identity=shared_identity(identity),
                usage=usage,
                session_id=session_of(obj),
                endpoint=CHAT if body is not None else UNKNOWN,
                generated=generated_of(outs[place] if place < len(outs) else None),
                reads_cache=reads_cache(obj),
                headers=event.headers,
                record=obj,
            )


def _from_body(prompt: PromptInput, body: Event) -> PromptInput:
    """Return the chat that the client sent, where the engine's own prompt wasn't logged whole."""
    if not isinstance(prompt, NotReplayable) or prompt.kind not in _NOT_LOGGED:
        return prompt
    if body.body is None or not isinstance(body.body.get("messages"), list):
        return prompt
    if _is_cut(body.body):
        return prompt
    return BodyReader().prompts_of(body.body, CHAT)[0]


def _is_cut(value: Any) -> bool:
    """Say whether the logger left something out, anywhere in a body."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack += item.values()
        elif isinstance(item, list):
            if "..." in item:
                return True
            stack += item
        elif isinstance(item, str) and len(item) == 2051 and item[1024:1027] == "...":
            return True
    return False


def _arrival(held: _Held, meta: Mapping[str, Any]) -> float | Unknown:
    if held.received is not None:
        return held.received.time_s
    assert held.finished is not None
    finished_s, latency_s = held.finished.time_s, meta.get("e2e_latency")
    if isinstance(latency_s, float) and finished_s is not UNKNOWN and 0 <= latency_s < 1e6:
        return finished_s - latency_s
    return finished_s


def _first_rid(obj: Mapping[str, Any]) -> str | None:
    rid = obj.get("rid")
    first = rid[0] if isinstance(rid, list) and rid else rid
    return first if isinstance(first, str) else None


FORMAT = LogFormat(
    title="SGLang's request log, text or JSON",
    fields=(
        "request_id",
        "arrival_s",
        "session_id",
        "prompt",
        "prompt_token_ids",
        "messages",
        "usage",
        "generated",
        "lora_path",
        "lora_revision",
        "cache_salt",
        "extra_key",
        "headers",
        "readings",
    ),
    recognise=_recognise,
    read=_read,
)
