"""ShareGPT: an id, and `conversations` of {from, value}; JSON lines or one array.

Each turn of the model is an answer to all that stands in front of it, so a conversation gives as
many requests as it has answers. A conversation that starts with an answer has lost its first
prompt; that answer is history of the next. Texts are taken as they are, HTML too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prefixaudit.core.request import Request, Source
from prefixaudit.logs._conversations import conversation_requests, turns_of
from prefixaudit.logs._fields import first_text, shared_identity
from prefixaudit.logs._format import LogFormat, Sample
from prefixaudit.logs._json_lines import RecordError, read_json_lines

_NAMES: Final = ("conversations", "conversation")
_ROLES: Final = {
    "human": "user", "user": "user",
    "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant", "model": "assistant",
    "bing": "assistant", "bard": "assistant", "bot": "assistant", "function_call": "assistant",
    "system": "system",
    "tool": "tool", "observation": "tool", "function_response": "tool",
}  # fmt: skip


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(_is_conversation)
    return 0.5 + share / 2 if share else 0.0


def _is_conversation(record: Mapping[str, Any]) -> bool:
    turns = _turns(record)
    return (
        isinstance(turns, list)
        and bool(turns)
        and all(isinstance(turn, dict) and "from" in turn and "value" in turn for turn in turns)
    )


def _turns(record: Mapping[str, Any]) -> Any:
    return next((record[name] for name in _NAMES if name in record), None)


def _parse(record: Any, source: Source) -> tuple[Request, ...]:
    if not isinstance(record, dict):
        raise RecordError("no-prompt", "the record is no conversation")
    turns = turns_of(_turns(record), "from", "value", _ROLES)
    system = record.get("system")
    if isinstance(system, str) and system and turns[0]["role"] != "system":
        turns.insert(0, {"role": "system", "content": system})
    model = first_text((record,), ("model",))
    return conversation_requests(
        turns,
        conversation_id=first_text((record,), ("id", "conversation_id")),
        source=source,
        identity=shared_identity({} if model is None else {"model": model}),
        record={name: value for name, value in record.items() if name not in _NAMES},
    )


FORMAT = LogFormat(
    title="ShareGPT conversations",
    fields=("session_id", "parent_id", "messages", "generated"),
    recognise=_recognise,
    read=read_json_lines(_parse),
)
