"""Recorded conversations as the requests that made them: each answer had a prompt of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from prefixaudit.core.identity import Identity
from prefixaudit.core.request import NotReplayable, RawText, Request, Source
from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.logs._chats import conversation_prompts
from prefixaudit.logs._json_lines import RecordError
from prefixaudit.logs._openai_body import CHAT
from prefixaudit.logs._times import parse_time

REDACTED = NotReplayable(
    kind="redacted", reason="private words of the conversation were replaced, lengths with them"
)


def conversation_requests(
    messages: Sequence[Mapping[str, Any]],
    *,
    conversation_id: str | None,
    source: Source,
    identity: Identity,
    record: Mapping[str, Any],
    is_redacted: bool = False,
) -> tuple[Request, ...]:
    """Return a request for each prompt of a conversation of {role, content} messages.

    Messages may have a `timestamp`; the answer's is that of its request. Raises RecordError where
    there is no prompt.
    """
    name = conversation_id or f"{PurePath(source.path).name}:{source.line}"
    plain = [{"role": item["role"], "content": item["content"]} for item in messages]
    requests: list[Request] = []
    for number, (prompt, answer, length) in enumerate(conversation_prompts(plain)):
        requests.append(
            Request(
                request_id=f"{name}#{number}",
                source=source,
                prompt=REDACTED if is_redacted else prompt,
                arrival_s=_time(messages, length),
                identity=identity,
                session_id=name,
                parent_id=requests[-1].request_id if requests else None,
                endpoint=CHAT,
                generated=UNKNOWN
                if answer is None or is_redacted
                else RawText(text=answer["content"], add_special_tokens=False),
                record=record,
            )
        )
    if not requests:
        raise RecordError("no-prompt", "nobody asks anything in the conversation")
    return tuple(requests)


def turns_of(value: Any, role: str, text: str, roles: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a conversation's turns with `role` and `content`.

    `role` and `text` are the record's names for them. Raises RecordError for turns of another
    shape.
    """
    if not isinstance(value, list) or not value:
        raise RecordError("no-prompt", "the conversation is missing or empty")
    turns: list[dict[str, Any]] = []
    for turn in value:
        if not isinstance(turn, dict):
            raise RecordError("bad-field", "a turn of the conversation is no object")
        who, said = turn.get(role), turn.get(text)
        if not isinstance(who, str) or who.lower() not in roles:
            raise RecordError("bad-field", f"`{role}` of a turn names no known speaker")
        if said is None:
            said = ""
        if not isinstance(said, str):
            raise RecordError("bad-field", f"`{text}` of a turn is no text")
        turns.append({**turn, "role": roles[who.lower()], "content": said})
    return turns


def _time(messages: Sequence[Mapping[str, Any]], place: int) -> float | Unknown:
    """Return the time of the answer at `place`, or of the last message in front of it."""
    for message in messages[place : place + 1] or messages[-1:]:
        return parse_time(message.get("timestamp"))
    return UNKNOWN
