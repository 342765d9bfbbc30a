"""WEKA's agentic traces: a conversation a JSON object, its requests as block ids of its own.

    {"id": "trace-1", "models": ["m"], "block_size": 64, "hash_id_scope": "local",
     "tool_tokens": 100, "system_tokens": 50, "requests": [
       {"t": 0.0, "type": "n", "model": "m", "in": 200, "out": 9, "hash_ids": [1, 2, 3]},
       {"t": 1.5, "type": "subagent", "agent_id": "agent_001", "requests": […], …}]}

Ids are local: equal ones of two conversations say nothing, so they are made the conversation's own
here. A subagent shares its conversation's ids; its requests form a session of their own. Times are
seconds from the conversation's start, and conversations have no place in time among each other:
each starts at 0. A file may hold one object, an array or JSON lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePath
from typing import Any, Final

from prefixaudit.core.request import NotReplayable, PromptInput, Request, Source, Usage
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.logs._fields import first_text, known_count, known_text, shared_identity
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import Aside, LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import RecordError, read_json_lines
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._times import trace_time
from prefixaudit.logs._trace_blocks import block_ids, blocks_prompt, scoped, whole_number

_MAX_DEPTH: Final = 16


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(_is_conversation)
    return 0.6 + 0.35 * share if share else 0.0


def _is_conversation(record: Mapping[str, Any]) -> bool:
    return (
        isinstance(record.get("requests"), list)
        and type(record.get("block_size")) is int
        and ("hash_id_scope" in record or _looks_like_requests(record["requests"]))
    )


def _looks_like_requests(requests: list[Any]) -> bool:
    first = requests[0] if requests else None
    return isinstance(first, dict) and "t" in first and "type" in first


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    return read_json_lines(partial(_parse, file, options))(file, options)


def _parse(
    file: LogFile, options: ReadOptions, record: Any, source: Source
) -> tuple[ReadItem, ...]:
    if not isinstance(record, dict) or not isinstance(record.get("requests"), list):
        raise RecordError("no-prompt", "the record is no conversation with `requests`")
    block_size = options.trace_block_size or whole_number(record, "block_size")
    if block_size < 1:
        raise RecordError("bad-field", "`block_size` is 0; a block has 1 token or more")
    file.trace_block_size = block_size
    file.note("conversations have no place in time among each other: each one starts at 0")
    name = first_text((record,), ("id",)) or f"{PurePath(source.path).name}:{source.line}"
    is_local = record.get("hash_id_scope", "local") == "local"
    conversation = _Conversation(
        name=name, block_size=block_size, source=source, scope=name.encode() if is_local else None
    )
    found = tuple(conversation.requests(record["requests"], name, None, 0.0, 0))
    # A conversation that ended before its first request is nothing that was lost.
    return found or (Aside("empty-conversation"),)


class _Conversation:
    """The requests of one conversation and its subagents."""

    def __init__(self, *, name: str, block_size: int, source: Source, scope: bytes | None) -> None:
        self._name = name
        self._block_size = block_size
        self._source = source
        self._scope = scope
        self._num_requests = 0

    def requests(
        self, entries: list[Any], session: str, parent: str | None, start_s: float, depth: int
    ) -> Iterator[Request]:
        """Yield the requests of a list of entries, subagents where they were spawned.

        Raises RecordError where an entry is no object: the conversation is one record.
        """
        previous = parent
        for entry in entries:
            if not isinstance(entry, dict):
                raise RecordError("bad-field", "`requests` holds something else than objects")
            if isinstance(entry.get("requests"), list):
                if depth >= _MAX_DEPTH:
                    raise RecordError("too-deep", "subagents are nested too deeply")
                agent = first_text((entry,), ("agent_id",)) or f"agent@{self._num_requests}"
                yield from self.requests(
                    entry["requests"], f"{session}/{agent}", previous, start_s, depth + 1
                )
                continue
            request = self._request(entry, session, previous, start_s)
            previous = request.request_id
            yield request

    def _request(
        self, entry: Mapping[str, Any], session: str, previous: str | None, start_s: float
    ) -> Request:
        number = self._num_requests
        self._num_requests += 1
        time_s = trace_time(entry.get("t"), per_second=1.0)
        parent: Known[str] = previous
        return Request(
            request_id=f"{self._name}-{number}",
            source=self._source,
            prompt=self._prompt(entry),
            arrival_s=UNKNOWN if time_s is UNKNOWN else start_s + time_s,
            identity=shared_identity({"model": known_text(entry, "model")}),
            usage=Usage(
                num_prompt_tokens=known_count(entry, "in"),
                num_completion_tokens=known_count(entry, "out"),
            ),
            session_id=session,
            parent_id=parent,
        )

    def _prompt(self, entry: Mapping[str, Any]) -> PromptInput:
        # One bad entry must not cost the whole conversation.
        try:
            ids = block_ids(entry.get("hash_ids", []), "hash_ids")
            length = whole_number(entry, "in", "input_length")
            if self._scope is not None:
                ids = scoped(ids, self._scope)
            return blocks_prompt(ids, self._block_size, length, "hash_ids")
        except RecordError as error:
            return NotReplayable(kind=error.kind, reason=error.reason)


FORMAT = LogFormat(
    title="WEKA agentic trace: conversations of block hashes, with subagents",
    fields=(
        "arrival_s",
        "hash_ids",
        "num_prompt_tokens",
        "num_completion_tokens",
        "session_id",
        "parent_id",
        "model",
    ),
    recognise=_recognise,
    read=_read,
)
