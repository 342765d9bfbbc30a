"""The lines of one request joined into it, in bounded memory.

A request is held until its answer was seen, or until very many came after it, so that the answer
and the limit at which prompts are cut are known where they stand near. Requests leave in the order
in which their first lines stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prefixaudit.core.request import (
    ChatMessages,
    Generated,
    NotReplayable,
    PromptInput,
    RawText,
    Request,
    Skipped,
    TokenIds,
)
from prefixaudit.core.unknown import UNKNOWN, Known, Unknown
from prefixaudit.logs._cut_prompts import CutPrompts
from prefixaudit.logs._fields import first_text, shared_identity, token_ids
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import ReadItem
from prefixaudit.logs._json_lines import RecordError
from prefixaudit.logs._openai_body import (
    CHAT,
    COMPLETIONS,
    BodyReader,
    endpoint_of,
    identity_fields,
    num_samples,
    reads_cache,
)
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._python_repr import fields_of, plain_value
from prefixaudit.logs._vllm_lines import Message
from prefixaudit.logs._vllm_requests import Answered, Asked, Body, Said

_MAX_HELD: Final = 2048
_MAX_HELD_CHARACTERS: Final = 2**26
_KIND: Final = re.compile(r"^(chatcmpl|chat|cmpl)-(.*?)(?:-(\d{1,9}))?$", re.DOTALL)


@dataclass(slots=True, kw_only=True)
class _Held:
    """What is known so far of one request."""

    request_id: str
    line: int
    time_s: float | Unknown
    has_date: bool
    text: Known[str] = UNKNOWN
    ids: list[int] | None | Unknown = UNKNOWN
    has_embeds: bool = False
    says_embeds: bool = False
    params: str = ""
    identity: dict[str, Known[str]] = field(default_factory=dict)
    body: Body | None = None
    is_received: bool = False
    answer: Answered | None = None
    answer_ids: list[int] | None = None

    @property
    def num_characters(self) -> int:
        """Return roughly how much memory it takes."""
        text = self.text if isinstance(self.text, str) else ""
        ids = self.ids if isinstance(self.ids, list) else []
        body = 0 if self.body is None else self.body.num_characters
        return len(text) + 8 * len(ids) + body

    @property
    def is_chat(self) -> bool:
        return self.request_id.startswith("chat")


class Joiner:
    """Joins what was said of the requests of one file."""

    def __init__(self, file: LogFile, options: ReadOptions) -> None:
        self._file = file
        self._cuts = CutPrompts(limit=options.max_log_len)
        self._has_limit = options.max_log_len is not None
        self._held: dict[int, _Held] = {}
        self._by_id: dict[str, int] = {}
        self._bodies: dict[int, _Held] = {}
        self._num_made = 0
        self._num_characters = 0

    def declare(self, text: str) -> None:
        """Look for the server's own limit in a line that is about no request."""
        if not self._has_limit and "max_log_len" in text:
            self._cuts.declare(text)

    def skipped(self, line: int, error: RecordError, *, is_tail: bool) -> Skipped:
        """Count a line of a request that can't be read."""
        self._file.num_records += 1
        kind, reason = error.kind, error.reason
        if is_tail and kind == "cut-line":
            kind = "cut-tail"
            reason = "the file's last line has no end yet; the record may still be being written"
        return Skipped(source=self._file.source(line), kind=kind, reason=reason)

    def take(self, message: Message, said: Said) -> None:
        """Add what a message says to its request."""
        match said:
            case Asked():
                self._ask(message, said)
            case Body():
                held = self._new(message, said.request_id)
                held.body = said
                self._bodies[self._num_made - 1] = held
                self._num_characters += held.num_characters
            case Answered():
                self._answer(said)

    def ready(self) -> Iterator[ReadItem]:
        """Yield the requests at the front that nothing more is expected for."""
        while self._held:
            number, held = next(iter(self._held.items()))
            is_full = len(self._held) > _MAX_HELD or self._num_characters > _MAX_HELD_CHARACTERS
            if not is_full and (held.answer is None or not held.is_received):
                return
            yield self._leave(number, held)

    def rest(self) -> Iterator[ReadItem]:
        """Yield what is still held, at the end of the file."""
        for number, held in list(self._held.items()):
            yield self._leave(number, held)

    def _new(self, message: Message, request_id: str) -> _Held:
        held = _Held(
            request_id=request_id,
            line=message.line,
            time_s=message.time_s,
            has_date=message.has_date,
        )
        number = self._num_made
        self._num_made += 1
        self._held[number] = held
        self._by_id[request_id] = number
        return held

    def _find(self, request_id: str) -> _Held | None:
        number = self._by_id.get(request_id)
        return None if number is None else self._held.get(number)

    def _ask(self, message: Message, asked: Asked) -> None:
        held = self._find(asked.request_id)
        if held is not None and held.is_received and not asked.is_details:
            held = None  # the id comes again: another request
        if held is None:
            held = self._with_body(message, asked)
        else:
            self._file.num_other_lines += 1
        self._num_characters -= held.num_characters
        if asked.text is not UNKNOWN:
            held.text = asked.text
        if asked.token_ids is not UNKNOWN:
            held.ids = asked.token_ids
        held.has_embeds = held.has_embeds or asked.has_embeds
        held.says_embeds = held.says_embeds or asked.text is not UNKNOWN
        if not asked.is_details:
            held.is_received = True
            held.params = asked.params
            held.identity = dict(asked.identity)
        self._num_characters += held.num_characters
        text = held.text if isinstance(held.text, str) else None
        num_ids = len(held.ids) if isinstance(held.ids, list) else None
        if asked.text is not UNKNOWN:
            self._cuts.see(text, num_ids, is_chat=held.is_chat)

    def _with_body(self, message: Message, asked: Asked) -> _Held:
        """Return a new request, or the one that its body began.

        The body's line has the client's id, the others the server's, which has that one in it,
        unless a header names another: then it's the oldest body that nobody asked for yet and
        whose text is in the prompt or, without a prompt, whose parameters are the request's.
        """
        match = _KIND.match(asked.request_id)
        if match is not None:
            for bare in (match.group(2), asked.request_id.partition("-")[2]):
                began = self._find(bare)
                if began is not None and began.body is not None:
                    return self._continued(began, message, asked)
        for held in self._bodies.values():
            body = held.body.body if held.body is not None else None
            if body is None:
                continue
            if isinstance(asked.text, str):
                if _fits(body, asked.text):
                    return self._continued(held, message, asked)
            elif not asked.is_details and _params_fit(body, asked.params):
                self._file.note(
                    "bodies are joined to requests by their order and parameters, since the log "
                    "gives them other ids"
                )
                return self._continued(held, message, asked)
        return self._new(message, asked.request_id)

    def _continued(self, began: _Held, message: Message, asked: Asked) -> _Held:
        if began.is_received or began.text is not UNKNOWN:
            # A further prompt of one body: a request of its own.
            held = self._new(message, asked.request_id)
            held.body = began.body
            return held
        self._file.num_other_lines += 1
        number = self._by_id.pop(began.request_id)
        self._bodies.pop(number, None)
        self._by_id[asked.request_id] = number
        # Keep the client's id known, for further prompts of the same body.
        self._by_id.setdefault(began.request_id, number)
        began.request_id = asked.request_id
        return began

    def _answer(self, said: Answered) -> None:
        self._file.num_other_lines += 1
        held = self._find(said.request_id)
        if held is None or said.is_delta:
            return
        if said.text is None and said.token_ids is not None:
            held.answer_ids = said.token_ids
        elif held.answer is None:
            held.answer = said

    def _leave(self, number: int, held: _Held) -> ReadItem:
        del self._held[number]
        self._bodies.pop(number, None)
        for name in {held.request_id, _bare(held.request_id)}:
            if self._by_id.get(name) == number:
                del self._by_id[name]
        self._num_characters -= held.num_characters
        self._file.num_records += 1
        try:
            return self._request(held)
        except RecordError as error:
            source = self._file.source(held.line)
            return Skipped(source=source, kind=error.kind, reason=error.reason)

    def _request(self, held: _Held) -> Request:
        kind = _KIND.match(held.request_id)
        body = held.body.body if held.body is not None else None
        endpoint: str | None
        if kind is not None:
            endpoint = CHAT if held.is_chat else COMPLETIONS
        else:
            endpoint = endpoint_of(body, None) if body is not None else None
        prompt = self._prompt(held, body, endpoint)
        identity = identity_fields(body) if body is not None else {}
        identity |= held.identity
        adapter = identity.get("lora_name")
        if isinstance(adapter, str) and identity.get("model") == adapter:
            identity["model"] = UNKNOWN
        if held.says_embeds and not held.has_embeds:
            identity.setdefault("prompt_embeds", None)
        params = _params(held.params)
        samples = plain_value(params.get("n"))
        reads = plain_value(params.get("prompt_logprobs")) is None
        reads = reads and plain_value(params.get("skip_reading_prefix_cache")) is not True
        if body is not None:
            reads = reads and reads_cache(body, endpoint or "")
        # A template may print the date, and there is none without a year.
        has_time = held.has_date or not isinstance(prompt, ChatMessages)
        session_id = first_text((body or {},), ("session_id",)) if body is not None else None
        return Request(
            request_id=held.request_id,
            source=self._file.source(held.line),
            prompt=prompt,
            arrival_s=held.time_s if has_time else UNKNOWN,
            identity=shared_identity(identity),
            session_id=UNKNOWN if session_id is None else session_id,
            endpoint=UNKNOWN if endpoint is None else endpoint,
            generated=self._generated(held),
            num_samples=samples
            if isinstance(samples, int) and samples >= 1
            else (num_samples(body) if body is not None else 1),
            reads_cache=reads,
            record=body,
        )

    def _prompt(
        self, held: _Held, body: Mapping[str, Any] | None, endpoint: str | None
    ) -> PromptInput:
        if held.has_embeds:
            reason = "the prompt is given as embeddings, which have no token ids"
            return NotReplayable(kind="prompt-embeds", reason=reason)
        text = held.text if isinstance(held.text, str) else None
        ids = held.ids if isinstance(held.ids, list) and held.ids else None
        limit = self._cuts.limit_of(text, None if ids is None else len(ids), is_chat=held.is_chat)
        if ids is not None and (limit is None or len(ids) < limit):
            return TokenIds(token_ids=token_ids(ids, "prompt_token_ids"))
        if text is not None and (limit is None or len(text) < limit):
            if isinstance(plain_value(_params(held.params).get("truncate_prompt_tokens")), int):
                reason = "the server cuts the prompt to a number of tokens"
                return NotReplayable(kind="truncated-prompt", reason=reason)
            return RawText(text=text, add_special_tokens=not held.is_chat)
        if body is not None and endpoint is not None:
            prompts = BodyReader().prompts_of(body, endpoint)
            place = int((_KIND.match(held.request_id) or [0, 0, 0, 0])[3] or 0)
            return prompts[place] if 0 < place < len(prompts) else prompts[0]
        if limit is not None:
            reason = f"the server's log cuts prompts after {limit} characters or ids"
            return NotReplayable(kind="cut-prompt", reason=reason)
        if held.body is not None:
            return NotReplayable(
                kind="cut-body", reason="the logged body is not whole JSON: it was cut"
            )
        reason = "the log has no prompt: vLLM 0.11.2 and later write it at DEBUG only"
        return NotReplayable(kind="no-prompt-logged", reason=reason)

    def _generated(self, held: _Held) -> Generated | Unknown:
        if held.answer is None:
            return UNKNOWN
        text = held.answer.text
        ids = held.answer.token_ids or held.answer_ids
        if self._cuts.is_cut_answer(text, None if ids is None else len(ids)):
            return UNKNOWN
        if ids:
            return TokenIds(token_ids=token_ids(ids, "output_token_ids"))
        # The text of a chat has neither its reasoning nor its tool calls.
        if text and held.request_id.startswith("cmpl-"):
            return RawText(text=text, add_special_tokens=False)
        return UNKNOWN


def _bare(request_id: str) -> str:
    match = _KIND.match(request_id)
    return request_id if match is None else match.group(2)


def _params(text: str) -> dict[str, str]:
    try:
        return fields_of(text)
    except RecordError:
        return {}


def _fits(body: Mapping[str, Any], text: str) -> bool:
    """Say whether a prompt can be that of a body: the body's last text stands in it."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    content = last.get("content") if isinstance(last, dict) else body.get("prompt")
    return isinstance(content, str) and content != "" and content.strip() in text


def _params_fit(body: Mapping[str, Any], params: str) -> bool:
    """Say whether sampling parameters can be those of a body: nothing that both state differs."""
    written = _params(params)
    for ours in ("max_completion_tokens", "max_tokens", "temperature", "top_p", "seed", "n"):
        sent = body.get(ours)
        used = plain_value(written.get(ours.replace("completion_", "")))
        if isinstance(sent, int | float) and isinstance(used, int | float) and sent != used:
            return False
        if ours == "max_completion_tokens" and sent is not None:
            # It wins over `max_tokens`, which is then of no account.
            body = {name: value for name, value in body.items() if name != "max_tokens"}
    return True
