"""What vLLM logs of a request, by release: the lines, taken apart but not yet joined.

    0.6.0 - 0.8.5     Received request ID: prompt: REPR, params: …, prompt_token_ids: LIST,
                      lora_request: …, prompt_adapter_request: ….
    0.9.2 - 0.11.0    the same with `prompt_embeds shape: …`; no prompt adapter from 0.10.0 on
    0.11.2 - 0.33.0   Received request ID: params: …, lora_request: ….
            (DEBUG)   Request ID details: prompt: REPR, prompt_token_ids: LIST,
                      prompt_embeds shape: ….
    0.31.0 - 0.33.0   Request ID JSON body: {…}, cut to `--max-log-len` characters
    0.10.2 - 0.33.0   Generated response ID[ (streaming …)]: output: REPR, …
    0.29.0 - 0.33.0   Generated response ID details: output_token_ids: LIST

The prompt is a Python string literal, in which anything may stand, `, params:` too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import orjson

from prefixaudit.core.unknown import UNKNOWN, Known, Unknown
from prefixaudit.logs._json_lines import RecordError
from prefixaudit.logs._python_repr import (
    fields_of,
    id_list,
    plain_value,
    string_end,
    string_value,
    value_end,
)

_RECEIVED: Final = re.compile(r"Received request (?P<id>.{1,512}?): (?=prompt: |params: )")
_DETAILS: Final = re.compile(r"Request (?P<id>.{1,512}?) details: (?=prompt: )")
_BODY: Final = re.compile(r"Request (?P<id>.{1,512}?) JSON body: ")
_GENERATED: Final = re.compile(
    r"Generated response (?P<id>.{1,512}?)(?P<stream> \(streaming (?:delta|complete)\))?"
    r"(?P<details> details)?: (?=output: |output_token_ids: )"
)
# Enough of a request's line to know that it was one, wherever it is damaged.
MARKERS: Final = re.compile(
    r"Received request |prompt_token_ids: |SamplingParams\(|: params: |: prompt: |"
    r"Request \S+ (?:details|JSON body): |, lora_request: |Generated response |finish_reason: "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A received request, or the details of one: what its line says of the prompt.

    `text` and `token_ids` are None where the line says None and UNKNOWN where it has no such part.
    """

    request_id: str
    is_details: bool
    text: Known[str] = UNKNOWN
    token_ids: list[int] | None | Unknown = UNKNOWN
    has_embeds: bool = False
    params: str = ""
    identity: dict[str, Known[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The body that the client sent; None where it was cut."""

    request_id: str
    body: dict[str, Any] | None
    num_characters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer or a part of it."""

    request_id: str
    is_delta: bool
    text: str | None
    token_ids: list[int] | None


Said: TypeAlias = Asked | Body | Answered


def said_in(text: str) -> Said | None:
    """Return what a message says of a request; None where it's about something else.

    Raises RecordError where a request's line is cut or damaged.
    """
    if text.startswith("Received request "):
        match = _RECEIVED.match(text)
        if match is None:
            raise _cut()
        return _received(match.group("id"), text, match.end())
    if text.startswith("Request "):
        if match := _DETAILS.match(text):
            return _details(match.group("id"), text, match.end())
        if match := _BODY.match(text):
            return _body(match.group("id"), text[match.end() :])
        return None
    if text.startswith("Generated response "):
        match = _GENERATED.match(text)
        if match is None:
            raise _cut()
        return _answered(match, text)
    return None


def _received(request_id: str, text: str, place: int) -> Asked:
    prompt: Known[str] = UNKNOWN
    if text.startswith("prompt: ", place):
        prompt, place = _quoted(text, place + len("prompt: "))
        place = _behind(text, place, ", ")
    place = _behind(text, place, "params: ")
    params, place = _value(text, place)
    ids: list[int] | None | Unknown = UNKNOWN
    has_embeds = False
    identity: dict[str, Known[str]] = {}
    while text.startswith(", ", place):
        name, colon, _ = text[place + 2 : place + 40].partition(": ")
        if not colon:
            raise _cut()
        value, place = _value(text, place + 2 + len(name) + 2)
        if name == "prompt_token_ids":
            ids = _ids(value)
        elif name == "prompt_embeds shape":
            has_embeds = _last(value) != "None"
        elif name == "lora_request":
            identity |= _adapter(_last(value))
        elif name == "prompt_adapter_request" and _last(value) != "None":
            identity["prompt_embeds"] = _last(value)
    if text[place:].strip() not in ("", "."):
        raise _cut()
    if not identity:
        raise _cut()
    return Asked(
        request_id=request_id,
        is_details=False,
        text=prompt,
        token_ids=ids,
        has_embeds=has_embeds,
        params=params,
        identity=identity,
    )


def _details(request_id: str, text: str, place: int) -> Asked:
    prompt, place = _quoted(text, place + len("prompt: "))
    place = _behind(text, place, ", prompt_token_ids: ")
    ids, place = _value(text, place)
    place = _behind(text, place, ", prompt_embeds shape: ")
    shape, _ = _value(text, place)
    return Asked(
        request_id=request_id,
        is_details=True,
        text=prompt,
        token_ids=_ids(ids),
        has_embeds=_last(shape) != "None",
    )


def _body(request_id: str, text: str) -> Body:
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError:
        body = None
    if body is not None and not isinstance(body, dict):
        raise RecordError("bad-field", "the logged body is no JSON object")
    return Body(request_id=request_id, body=body, num_characters=len(text))


def _answered(match: re.Match[str], text: str) -> Answered:
    place = match.end()
    is_delta = (match.group("stream") or "").endswith("delta)")
    answer: str | None = None
    if text.startswith("output: ", place):
        answer, place = _quoted(text, place + len("output: "))
        place = _behind(text, place, ", ")
    ids = None
    if text.startswith("output_token_ids: ", place):
        value, place = _value(text, place + len("output_token_ids: "))
        ids = _ids(value)
    return Answered(request_id=match.group("id"), is_delta=is_delta, text=answer, token_ids=ids)


def _quoted(text: str, place: int) -> tuple[str | None, int]:
    """Return a quoted text, or None for a written None, and the place behind it."""
    if text.startswith("None", place):
        return None, place + 4
    end = string_end(text, place)
    if end < 0:
        raise _cut()
    return string_value(text[place:end]), end


def _value(text: str, place: int) -> tuple[str, int]:
    end = value_end(text, place)
    if end < 0:
        raise _cut()
    return text[place:end], end


def _last(value: str) -> str:
    """Return a value without the full stop that ends a line."""
    return value.strip().removesuffix(".")


def _behind(text: str, place: int, expected: str) -> int:
    if not text.startswith(expected, place):
        raise _cut()
    return place + len(expected)


def _ids(value: str) -> list[int] | None:
    value = _last(value)
    if value == "None":
        return None
    ids = id_list(value)
    if ids is None:
        raise _cut()
    return ids


def _adapter(value: str) -> dict[str, Known[str]]:
    if value == "None":
        return {"lora_name": None, "lora_revision": None, "lora_path": None}
    fields = fields_of(value)
    found: dict[str, Known[str]] = {}
    for ours, theirs in (("lora_name", "lora_name"), ("lora_path", "lora_path"),
                         ("model", "base_model_name")):  # fmt: skip
        written = plain_value(fields.get(theirs))
        if isinstance(written, str) and written:
            found[ours] = written
    number = plain_value(fields.get("lora_int_id"))
    if isinstance(number, int):
        # Counts loads within a server: another number under one name is another load of weights.
        found["lora_revision"] = f"int_id={number}"
    return found or {"lora_name": UNKNOWN}


def _cut() -> RecordError:
    return RecordError("cut-line", "the line of a request ends in its middle: data is lost")
