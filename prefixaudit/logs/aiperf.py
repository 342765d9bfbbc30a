"""AIPerf's datasets: what its runs send, a JSON line a request or a conversation.

    mooncake_trace   one of input_length (with hash_ids), text_input, messages (+ tools), payload;
                     timestamp and delay in ms, session_id
    single_turn, random_pool   text or texts, image(s), audio(s), video(s), role
    multi_turn       {"session_id", "turns": [turn, …]}
    inputs.json      {"data": [{"session_id", "payloads": [body, …]}]}
    dag_jsonl        {"session_id", "turns": [{"messages", "forks", "spawns", …}], "context_mode"}
    profile_export   {"metadata", "metrics"}: what a run measured; lengths and cached tokens

Plain traces of `input_length` and `hash_ids` are read as `mooncake`. Multi-turn texts hold no
answers: AIPerf takes the server's own, so that only the first prompt of a session is in the file.
Forked sessions start with all that their parent had by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

from prefixaudit.core.request import (
    NO_USAGE,
    LengthOnly,
    NotReplayable,
    PromptInput,
    Request,
    Skipped,
    Source,
    Usage,
)
from prefixaudit.core.unknown import UNKNOWN, Known, Unknown
from prefixaudit.logs._aiperf_turns import LIVE_HISTORY, chat_of, is_turn, message_of
from prefixaudit.logs._fields import first_text, known_count, shared_identity
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import Aside, LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import RecordError, json_records, parsed
from prefixaudit.logs._openai_body import (
    BodyReader,
    endpoint_of,
    identity_fields,
    is_body,
    num_samples,
)
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._times import trace_time
from prefixaudit.logs._trace_blocks import block_ids, blocks_prompt, whole_number

DEFAULT_BLOCK_SIZE: Final = 512
_TRACE_NAMES: Final = frozenset(
    {"type", "input_length", "text_input", "messages", "tools", "payload", "output_length",
     "hash_ids", "timestamp", "delay", "session_id", "extra"}
)  # fmt: skip


def _recognise(sample: Sample) -> float:
    if not sample.share_of_records(_is_ours):
        return 0.0
    # Rows of hash ids among others belong to it as well.
    return 0.45 + sample.share_of_records(lambda record: _kind_of(record) is not None) / 2


def _is_ours(record: Mapping[str, Any]) -> bool:
    return _kind_of(record) is not None and not _is_plain_mooncake(record)


def _is_plain_mooncake(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("hash_ids"), list) and "input_length" in record


def _kind_of(record: Mapping[str, Any]) -> str | None:
    turns = record.get("turns")
    if isinstance(turns, list):
        first = turns[0] if turns else None
        if isinstance(first, dict) and isinstance(first.get("messages"), list):
            return "dag"
        if isinstance(first, dict) and is_turn(first):
            return "turns"
        return "dag" if "orchestrator" in record or "context_mode" in record else None
    if isinstance(record.get("payloads"), list) and "session_id" in record:
        return "payloads"
    if isinstance(record.get("metadata"), dict) and isinstance(record.get("metrics"), dict):
        return "result" if "request_start_ns" in record["metadata"] else None
    if record.keys() <= _TRACE_NAMES:
        if isinstance(record.get("text_input"), str) or isinstance(record.get("payload"), dict):
            return "trace"
        if isinstance(record.get("messages"), list) and record.keys() & {
            "timestamp", "delay", "output_length", "session_id"}:  # fmt: skip
            return "trace"
        if "input_length" in record and ("output_length" in record or "hash_ids" in record):
            return "trace"
    if is_turn(record) and "messages" not in record:
        return "turn" if record.keys() <= _TURN_NAMES else None
    return None


_TURN_NAMES: Final = frozenset(
    {"type", "text", "texts", "image", "images", "image_uuids", "audio", "audios", "video",
     "videos", "timestamp", "delay", "role", "session_id", "output_length", "extra"}
)  # fmt: skip


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    reader = _Reader(file, options)
    graphs: list[tuple[Source, Mapping[str, Any]]] = []
    for item in json_records(file):
        if isinstance(item, Skipped):
            yield item
            continue
        source, record = item
        if isinstance(record, dict) and _kind_of(record) == "dag":
            graphs.append((source, record))
            continue
        yield from parsed(reader.parse, record, source)
    if graphs:
        yield from _Graph(graphs).items()


class _Reader:
    """Records of one file but those of a graph, which need each other."""

    def __init__(self, file: LogFile, options: ReadOptions) -> None:
        self._block_size = options.trace_block_size or DEFAULT_BLOCK_SIZE
        self._file = file
        self._sessions: dict[str, float | Unknown] = {}

    def parse(self, record: Any, source: Source) -> tuple[ReadItem, ...]:
        kind = _kind_of(record) if isinstance(record, dict) else None
        match kind:
            case "trace":
                return (self._trace(record, source),)
            case "turn":
                prompt = chat_of([message_of(record)])
                return (self._request(record, source, prompt, self._arrival(record)),)
            case "turns":
                return self._turns(record, source)
            case "payloads":
                return self._payloads(record, source)
            case "result":
                return (_result(record, source),)
        raise RecordError("no-prompt", "the record is no request or conversation of AIPerf's")

    def _trace(self, record: Mapping[str, Any], source: Source) -> Request:
        session = first_text((record,), ("session_id",))
        is_first = session is None or session not in self._sessions
        arrival = self._arrival(record)
        if session is not None:
            self._sessions[session] = arrival
        prompt: PromptInput
        identity: Mapping[str, Known[str]] = {}
        payload = record.get("payload")
        if isinstance(payload, dict):
            prompt, identity = _prompt_of_body(payload)
        elif "messages" in record:
            prompt = chat_of(record["messages"], record.get("tools"))
        elif "text_input" in record:
            text = record["text_input"]
            if not isinstance(text, str):
                raise RecordError("no-prompt", "`text_input` is no text")
            prompt = chat_of([{"role": "user", "content": text}]) if is_first else LIVE_HISTORY
        else:
            length = whole_number(record, "input_length")
            ids = block_ids(record.get("hash_ids") or [], "hash_ids")
            prompt = blocks_prompt(ids, self._block_size, length, "hash_ids")
            self._file.trace_block_size = self._block_size
        return self._request(record, source, prompt, arrival, identity)

    def _turns(self, record: Mapping[str, Any], source: Source) -> tuple[Request, ...]:
        session = first_text((record,), ("session_id",)) or _name(source)
        requests = []
        for place, turn in enumerate(record["turns"]):
            if not isinstance(turn, dict):
                raise RecordError("bad-field", "`turns` holds something else than objects")
            prompt = chat_of([message_of(turn)]) if place == 0 else LIVE_HISTORY
            requests.append(
                Request(
                    request_id=f"{session}-{place}",
                    source=source,
                    prompt=prompt,
                    arrival_s=trace_time(turn.get("timestamp"), per_second=1000.0),
                    session_id=session,
                    parent_id=f"{session}-{place - 1}" if place else None,
                    record=turn,
                )
            )
        if not requests:
            raise RecordError("no-prompt", "the conversation has no turns")
        return tuple(requests)

    def _payloads(self, record: Mapping[str, Any], source: Source) -> tuple[Request, ...]:
        session = first_text((record,), ("session_id",)) or _name(source)
        requests = []
        for place, body in enumerate(record["payloads"]):
            if not isinstance(body, dict):
                raise RecordError("bad-field", "`payloads` holds something else than objects")
            prompt, identity = _prompt_of_body(body)
            requests.append(
                Request(
                    request_id=f"{session}-{place}",
                    source=source,
                    prompt=prompt,
                    identity=shared_identity(identity),
                    session_id=session,
                    parent_id=f"{session}-{place - 1}" if place else None,
                    num_samples=num_samples(body),
                    record=body,
                )
            )
        if not requests:
            raise RecordError("no-prompt", "the session has no payloads")
        return tuple(requests)

    def _arrival(self, record: Mapping[str, Any]) -> float | Unknown:
        arrival = trace_time(record.get("timestamp"), per_second=1000.0)
        delay = trace_time(record.get("delay"), per_second=1000.0)
        session = first_text((record,), ("session_id",))
        if arrival is UNKNOWN and delay is not UNKNOWN and session in self._sessions:
            # Counted from the end of the turn before, whose duration isn't in the file.
            before = self._sessions[session]
            return UNKNOWN if before is UNKNOWN else before + delay
        return arrival

    def _request(
        self,
        record: Mapping[str, Any],
        source: Source,
        prompt: PromptInput,
        arrival: float | Unknown,
        identity: Mapping[str, Known[str]] | None = None,
    ) -> Request:
        session = first_text((record,), ("session_id",))
        return Request(
            request_id=_name(source),
            source=source,
            prompt=prompt,
            arrival_s=arrival,
            identity=shared_identity(identity or {}),
            usage=NO_USAGE,
            session_id=UNKNOWN if session is None else session,
            record=record,
        )


def _prompt_of_body(body: Mapping[str, Any]) -> tuple[PromptInput, Mapping[str, Known[str]]]:
    endpoint = endpoint_of(body, None) if is_body(body) else None
    if endpoint is None:
        raise RecordError("no-prompt", "the payload has no prompt")
    prompts = BodyReader().prompts_of(body, endpoint)
    if len(prompts) > 1:
        raise RecordError("batch", "the payload holds several prompts")
    return prompts[0], identity_fields(body)


class _Graph:
    """Conversations that fork: a child's prompts start with all that its parent had."""

    def __init__(self, records: list[tuple[Source, Mapping[str, Any]]]) -> None:
        self._records = records
        self._sources: dict[str, Mapping[str, Any]] = {}
        self._parents: dict[str, tuple[str, int]] = {}
        for _, record in records:
            session = first_text((record,), ("session_id",))
            if session is None:
                continue
            self._sources.setdefault(session, record)
            for place, turn in enumerate(_turns_of(record)):
                forks = turn.get("forks")
                for fork in forks if isinstance(forks, list) else []:
                    child = fork.get("child") if isinstance(fork, dict) else fork
                    if isinstance(child, str):
                        self._parents.setdefault(child, (session, place))

    def items(self) -> Iterator[ReadItem]:
        for source, record in self._records:
            yield from parsed(self._parse, record, source)

    def _parse(self, record: Any, source: Source) -> tuple[ReadItem, ...]:
        session = first_text((record,), ("session_id",)) or _name(source)
        turns = _turns_of(record)
        if not turns:
            return (Aside("orchestrator"),)
        history = self._inherited(session)
        mode = str(record.get("context_mode") or "deltas_without_responses").lower()
        requests: list[ReadItem] = []
        for place, turn in enumerate(turns):
            prompt: PromptInput
            own = chat_of(turn.get("messages"), turn.get("tools"))
            if mode.startswith("message_array"):
                prompt = own
            elif history is None or (place and mode != "deltas_with_responses"):
                prompt = LIVE_HISTORY
            else:
                history = [*history, *turn["messages"]]
                prompt = chat_of(history, turn.get("tools"))
            parent = self._parents.get(session)
            before = f"{session}-{place - 1}" if place else None
            if before is None and parent is not None:
                before = f"{parent[0]}-{parent[1]}"
            requests.append(
                Request(
                    request_id=f"{session}-{place}",
                    source=source,
                    prompt=prompt,
                    identity=shared_identity(
                        {"model": turn["model"]} if isinstance(turn.get("model"), str) else {}
                    ),
                    session_id=session,
                    parent_id=before,
                    record=turn,
                )
            )
        return tuple(requests)

    def _inherited(self, session: str) -> list[Any] | None:
        """Return what stands before a session's first turn; None where answers are missing."""
        chain = [session]
        while (parent := self._parents.get(chain[-1])) is not None:
            if parent[0] in chain or parent[0] not in self._sources:
                return None
            chain.append(parent[0])
        history: list[Any] = []
        for ancestor, child in zip(chain[:0:-1], chain[-2::-1], strict=True):
            record = self._sources[ancestor]
            if str(record.get("context_mode") or "").lower() != "deltas_with_responses":
                return None
            last = self._parents[child][1]
            for turn in _turns_of(record)[: last + 1]:
                messages = turn.get("messages")
                history += messages if isinstance(messages, list) else []
        return history


def _turns_of(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    turns = record.get("turns")
    if not isinstance(turns, list):
        return []
    return [turn for turn in turns if isinstance(turn, dict)]


def _result(record: Mapping[str, Any], source: Source) -> Request:
    metadata, metrics = record["metadata"], record["metrics"]
    usage = Usage(
        num_prompt_tokens=_metric(metrics, "usage_prompt_tokens"),
        num_cached_tokens=_metric(metrics, "usage_prompt_cache_read_tokens"),
        num_completion_tokens=_metric(metrics, "usage_completion_tokens"),
    )
    length = usage.num_prompt_tokens
    if not isinstance(length, int):
        length = _metric(metrics, "input_sequence_length")
    prompt: PromptInput
    if isinstance(length, int):
        prompt = LengthOnly(num_prompt_tokens=length)
    else:
        reason = "a benchmark's result, which has no prompt"
        prompt = NotReplayable(kind="benchmark-result", reason=reason)
    session = first_text((metadata,), ("conversation_id", "x_correlation_id"))
    return Request(
        request_id=first_text((metadata,), ("x_request_id",)) or _name(source),
        source=source,
        prompt=prompt,
        arrival_s=trace_time(metadata.get("request_start_ns"), per_second=1e9),
        usage=usage,
        session_id=UNKNOWN if session is None else session,
        record=record,
    )


def _metric(metrics: Mapping[str, Any], name: str) -> Known[int]:
    metric = metrics.get(name)
    return known_count(metric, "value") if isinstance(metric, dict) else UNKNOWN


def _name(source: Source) -> str:
    return f"{PurePath(source.path).name}:{source.line}"


FORMAT = LogFormat(
    title="AIPerf datasets and results: traces of texts and messages, turns, inputs.json, graphs",
    fields=(
        "arrival_s",
        "session_id",
        "parent_id",
        "messages",
        "hash_ids",
        "num_prompt_tokens",
        "usage",
        "model",
    ),
    recognise=_recognise,
    read=_read,
)
