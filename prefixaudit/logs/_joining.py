"""Answers that stand apart from their requests, in other lines or files, joined by id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from prefixaudit.core.request import NO_USAGE, NotReplayable, Request
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import Answer

# What the server's answer says of the prompt: it wasn't computed.
NOT_COMPUTED = frozenset({"refused", "response-cache"})


class Answers:
    """The answers seen so far. Memory is that of their usage and text."""

    def __init__(self) -> None:
        self._by_id: dict[str, list[tuple[LogFile, Answer]]] = {}
        self._taken: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def add(self, file: LogFile, answer: Answer) -> None:
        """Remember an answer of a file."""
        self._by_id.setdefault(answer.request.request_id, []).append((file, answer))

    def joined(self, request: Request) -> Request:
        """Return the request with what its answer adds to what is unknown of it.

        An answer is given to one request only. Several answers to one id are taken where they say
        the same or only one isn't a failure; else nobody knows which is meant, and none is taken.
        """
        if not self._by_id:
            return request
        request_id = request.request_id
        several = request_id.endswith("-0") and request_id not in self._by_id
        answered_id = request_id[:-2] if several else request_id
        found = self._by_id.get(answered_id)
        if not found or answered_id in self._taken:
            return request
        answer = _one_of([answer.request for _, answer in found])
        if answer is None:
            return request
        self._taken.add(answered_id)
        # Usage of a record with several prompts is their sum: it's nobody's own.
        return request if several else _filled(request, answer)

    def left_over(self) -> Iterator[Request]:
        """Yield what no request took, in the order of the answers; count the others."""
        for answered_id, found in self._by_id.items():
            for file, answer in found:
                if answered_id in self._taken:
                    file.set_aside["joined-answer"] += 1
                else:
                    yield answer.request


def _one_of(answers: list[Request]) -> Request | None:
    def said(answer: Request) -> tuple[object, ...]:
        return answer.usage, repr(answer.generated), _was_refused(answer)

    whole = [answer for answer in answers if not _was_refused(answer)] or answers
    return whole[0] if len({said(answer) for answer in whole}) == 1 else None


def _was_refused(answer: Request) -> bool:
    return isinstance(answer.prompt, NotReplayable) and answer.prompt.kind in NOT_COMPUTED


def _filled(request: Request, answer: Request) -> Request:
    return replace(
        request,
        prompt=answer.prompt if _was_refused(answer) else request.prompt,
        usage=answer.usage if request.usage == NO_USAGE else request.usage,
        generated=answer.generated if request.generated is UNKNOWN else request.generated,
        arrival_s=answer.arrival_s if request.arrival_s is UNKNOWN else request.arrival_s,
        session_id=answer.session_id if request.session_id is UNKNOWN else request.session_id,
    )
