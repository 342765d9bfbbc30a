"""A request out of a row of any table: which column is which field, and what cells may hold.

Cells of text may hold JSON (messages, lists of ids). An empty cell says nothing. Of several ways to
give a prompt the most exact one that a row has is taken: ids, messages, text, block ids, a length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, Final

import orjson

from prefixaudit.core.identity import IDENTITY_FIELDS
from prefixaudit.core.request import (
    ChatMessages,
    Generated,
    LengthOnly,
    PromptInput,
    RawText,
    Request,
    Source,
    TokenIds,
    Usage,
)
from prefixaudit.core.unknown import UNKNOWN, Known, Unknown
from prefixaudit.errors import UsageError, unknown_name
from prefixaudit.logs._fields import known_count, known_text, shared_identity, token_ids
from prefixaudit.logs._json_lines import RecordError
from prefixaudit.logs._openai_body import BodyReader, endpoint_of, identity_fields, is_body
from prefixaudit.logs._times import parse_time
from prefixaudit.logs._trace_blocks import block_ids, blocks_prompt

_OTHER_FIELDS: Final = (
    "request_id", "arrival_s", "session_id", "parent_id", "endpoint", "body", "prompt", "messages",
    "tools", "prompt_token_ids", "hash_ids", "block_size", "output", "output_token_ids",
    "num_prompt_tokens", "num_cached_tokens", "num_completion_tokens",
)  # fmt: skip
FIELDS: Final = (*_OTHER_FIELDS, *IDENTITY_FIELDS)
PROMPT_FIELDS: Final = ("body", "prompt", "messages", "prompt_token_ids", "hash_ids",
                        "num_prompt_tokens")  # fmt: skip
# Names that tables give their columns; compared in lower case, without `_`, `-` and blanks.
_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "request_id": ("id", "requestid", "uuid", "reqid"),
    "arrival_s": ("timestamp", "arrivaltime", "time", "starttime", "createdat", "requesttime",
                  "timestampstartunixms", "arrivals"),
    "session_id": ("sessionid", "conversationid", "chatid", "providedsessionid"),
    "prompt": ("prompt", "text", "input", "inputtext", "textinput", "instruction", "question"),
    "messages": ("messages", "conversation"),
    "tools": ("tools",),
    "body": ("body", "requestbody", "payload"),
    "prompt_token_ids": ("prompttokenids", "inputids", "tokenids"),
    "hash_ids": ("hashids", "totalhashes", "blockhashes"),
    "block_size": ("blocksize",),
    "output": ("output", "response", "completion", "generatedtext"),
    "output_token_ids": ("outputtokenids",),
    "num_prompt_tokens": ("numprompttokens", "prompttokens", "inputtokens", "inputlength",
                          "prompttokenscount", "inputtokenscount", "promptlength"),
    "num_cached_tokens": ("numcachedtokens", "cachedtokens"),
    "num_completion_tokens": ("numcompletiontokens", "completiontokens", "outputtokens",
                              "outputlength", "outputtokenscount"),
    "user": ("user", "userid"),
    "tenant": ("tenant", "tenantid"),
}  # fmt: skip
_SEPARATORS: Final = re.compile(r"[\s,]+")


def checked_map(field_map: Mapping[str, str]) -> Mapping[str, str]:
    """Return a user's map. Raises UsageError for a field that there isn't."""
    for name in field_map:
        if name not in FIELDS:
            raise UsageError(unknown_name("field", name, FIELDS))
    return field_map


def guessed_map(columns: Iterable[str]) -> dict[str, str]:
    """Return the map of columns whose names say what they hold."""
    by_name: dict[str, str] = {}
    for column in columns:
        by_name.setdefault(_bare(column), column)
    found: dict[str, str] = {}
    for name in FIELDS:
        for alias in (_bare(name), *_ALIASES.get(name, ())):
            if alias in by_name:
                found[name] = by_name[alias]
                break
    return found


def request_of(
    row: Mapping[str, Any],
    field_map: Mapping[str, str],
    source: Source,
    *,
    trace_block_size: int | None,
    add_special_tokens: bool = True,
) -> Request:
    """Return the request of a row. Raises RecordError where it has none."""
    values = {name: _at(row, column) for name, column in field_map.items()}
    values = {name: value for name, value in values.items() if value is not UNKNOWN}
    num_prompt_tokens = _count(values, "num_prompt_tokens")
    prompt, identity, endpoint = _prompt(
        values, num_prompt_tokens, trace_block_size, add_special_tokens
    )
    for name in IDENTITY_FIELDS:
        if name in values:
            identity[name] = known_text(values, name)
    request_id = known_text(values, "request_id")
    return Request(
        request_id=request_id
        if isinstance(request_id, str)
        else f"{PurePath(source.path).name}:{source.line}",
        source=source,
        prompt=prompt,
        arrival_s=parse_time(values.get("arrival_s")),
        identity=shared_identity(identity),
        usage=Usage(
            num_prompt_tokens=num_prompt_tokens,
            num_cached_tokens=_count(values, "num_cached_tokens"),
            num_completion_tokens=_count(values, "num_completion_tokens"),
        ),
        session_id=known_text(values, "session_id"),
        parent_id=known_text(values, "parent_id"),
        endpoint=endpoint,
        generated=_generated(values),
        record=row,
    )


def _prompt(
    values: Mapping[str, Any],
    length: Known[int],
    trace_block_size: int | None,
    add_special_tokens: bool,
) -> tuple[PromptInput, dict[str, Known[str]], Known[str]]:
    nothing: dict[str, Known[str]] = {}
    if (ids := values.get("prompt_token_ids")) is not None:
        return (
            TokenIds(token_ids=token_ids(_id_list(ids), "prompt_token_ids")), nothing, UNKNOWN
        )  # fmt: skip
    if (body := _decoded(values.get("body"))) is not None:
        endpoint = endpoint_of(body, None) if isinstance(body, dict) and is_body(body) else None
        if endpoint is None:
            raise RecordError("no-prompt", "the body's column holds no request body")
        prompts = BodyReader().prompts_of(body, endpoint)
        if len(prompts) > 1:
            raise RecordError("batch", "the body holds several prompts")
        return prompts[0], identity_fields(body), endpoint
    if (messages := _decoded(values.get("messages"))) is not None:
        return _chat(messages, _decoded(values.get("tools"))), nothing, UNKNOWN
    if isinstance(text := values.get("prompt"), str) and text:
        return RawText(text=text, add_special_tokens=add_special_tokens), nothing, UNKNOWN
    if (hashes := values.get("hash_ids")) is not None and isinstance(length, int):
        size = trace_block_size or _count(values, "block_size")
        if not isinstance(size, int) or size < 1:
            raise RecordError(
                "no-block-size", "block ids without the size of a block; --trace-block-size says it"
            )
        ids = block_ids(_id_list(hashes), "hash_ids")
        return blocks_prompt(ids, size, length, "hash_ids"), nothing, UNKNOWN
    if isinstance(length, int):
        return LengthOnly(num_prompt_tokens=length), nothing, UNKNOWN
    raise RecordError("no-prompt", "the row has no prompt in any of the columns that are mapped")


def _chat(messages: Any, tools: Any) -> ChatMessages:
    if not isinstance(messages, list) or not messages:
        raise RecordError("no-prompt", "the messages' column holds no list of messages")
    if not all(isinstance(message, dict) for message in messages):
        raise RecordError("bad-field", "the messages' column holds something else than objects")
    if tools is not None and (
        not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools)
    ):
        raise RecordError("bad-field", "the tools' column holds something else than objects")
    return ChatMessages(
        messages=[_without_nulls(message) for message in messages],
        tools=None if not tools else [_without_nulls(tool) for tool in tools],
    )


def _without_nulls(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without the nulls that a table's common struct gives to all its rows."""
    return {
        name: value for name, value in message.items() if value is not None or name == "content"
    }


def _generated(values: Mapping[str, Any]) -> Generated | Unknown:
    if (ids := values.get("output_token_ids")) is not None:
        return TokenIds(token_ids=token_ids(_id_list(ids), "output_token_ids"))
    text = values.get("output")
    if isinstance(text, str) and text:
        return RawText(text=text, add_special_tokens=False)
    return UNKNOWN


def _at(row: Mapping[str, Any], column: str) -> Any:
    """Return a cell, through objects where the column's name has dots; UNKNOWN where it's empty."""
    if column in row:
        value = row[column]
        return UNKNOWN if value == "" else value
    value = row
    for name in column.split("."):
        if isinstance(value, str):
            value = _decoded(value)
        if not isinstance(value, dict) or name not in value:
            return UNKNOWN
        value = value[name]
    return UNKNOWN if value == "" else value


def _count(values: Mapping[str, Any], name: str) -> Known[int]:
    value = values.get(name, UNKNOWN)
    if isinstance(value, str):
        text = value.strip()
        if re.fullmatch(r"\d{1,18}(\.0{1,6})?", text, re.ASCII):
            return int(float(text)) if "." in text else int(text)
        return UNKNOWN
    return known_count(values, name)


def _id_list(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return _decoded(value)
    pieces = [piece for piece in _SEPARATORS.split(value) if piece]
    if not all(re.fullmatch(r"-?\d{1,20}", piece, re.ASCII) for piece in pieces):
        raise RecordError("bad-token-ids", "the ids' column holds something else than numbers")
    return [int(piece) for piece in pieces]


def _decoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        raise RecordError("invalid-json", "a cell that should hold JSON doesn't") from None


def _bare(name: str) -> str:
    return re.sub(r"[\s_\-]", "", name.lower())
