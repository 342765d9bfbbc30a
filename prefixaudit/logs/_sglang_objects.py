"""A request and its answer as SGLang's logger writes them: `obj` and `out`, by any level and form.

    levels 0, 1   without text, ids and adapter
    level 2       texts and lists of more than 2,048 keep the first and the last 1,024 items
    level 3       everything

The text form writes Python's repr, the JSON form JSON. `obj` may hold several prompts. At levels 0
and 1 an adapter may have been used without a word, so it's UNKNOWN there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from prefixaudit.core.request import (
    NO_USAGE,
    Generated,
    NotReplayable,
    PromptInput,
    RawText,
    TokenIds,
    Usage,
)
from prefixaudit.core.unknown import UNKNOWN, Known, Unknown
from prefixaudit.logs._fields import first_text, known_count, token_ids
from prefixaudit.logs._json_lines import RecordError
from prefixaudit.logs._python_repr import fields_of, plain_value, value_end

_HALF: Final = 1024
_MARK: Final = "..."
_CUT_REPR: Final = re.compile(r"['\"\]] \.\.\. ['\"\[]")
_NAMES: Final = (
    "rid", "text", "input_ids", "input_embeds", "lora_path", "lora_id", "cache_salt", "extra_key",
    "session_id", "routing_key", "session_params", "return_logprob", "logprob_start_len",
    "data_parallel_rank", "received_time",
)  # fmt: skip
_META_NAMES: Final = (
    "id", "prompt_tokens", "completion_tokens", "cached_tokens", "e2e_latency",
    "request_received_ts",
)  # fmt: skip
CUT: Final = object()
"""The value of a field of which the logger left out the middle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One prompt of an `obj`, by its id."""

    rid: str | None
    prompt: PromptInput
    length: int | None
    is_text: bool


def object_from_repr(text: str) -> dict[str, Any]:
    """Return the fields of a written `GenerateReqInput(…)` that matter here.

    Raises RecordError where the text is cut.
    """
    return _values(fields_of(text), _NAMES, inner=("session_params",))


def answer_from_repr(text: str) -> dict[str, Any]:
    """Return the fields of a written `out={'text': …, 'meta_info': {…}}` that matter here."""
    fields = fields_of(text)
    answer = _values(fields, ("text", "output_ids"), inner=())
    if "meta_info" in fields:
        answer["meta_info"] = _values(fields_of(fields["meta_info"]), _META_NAMES, inner=())
    return answer


def _values(
    fields: Mapping[str, str], names: tuple[str, ...], inner: tuple[str, ...]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in names:
        if name not in fields:
            continue
        written = fields[name]
        if name in inner and written.startswith("{"):
            values[name] = {key: plain_value(value) for key, value in fields_of(written).items()}
        elif _CUT_REPR.search(written) and written[:1] in "'\"[" and not _is_one_value(written):
            values[name] = CUT
        elif written.startswith("[") and "'" in written + '"':
            values[name] = _listed(written)
        else:
            values[name] = plain_value(written)
    return values


def _is_one_value(written: str) -> bool:
    value = plain_value(written)
    return not (isinstance(value, str) and value == written)


def _listed(written: str) -> Any:
    """Return a list of texts, or of lists of ids, as written by Python."""
    value = plain_value(written)
    if not isinstance(value, str):
        return value
    # Each item as the field of an object without names.
    items: list[Any] = []
    inner = written[1:-1]
    place = 0
    while place < len(inner):
        end = value_end(inner, place)
        if end < 0:
            raise RecordError("cut-line", "a logged list has no end: the line was cut")
        items.append(plain_value(inner[place:end]))
        place = end + 2
    return items


def parts_of(obj: Mapping[str, Any]) -> list[Part]:
    """Return the prompts of an `obj`, at least one."""
    rid = obj.get("rid")
    rids: list[Any] = rid if isinstance(rid, list) else [rid]
    ids, text = obj.get("input_ids"), obj.get("text")
    if obj.get("input_embeds") is not None:
        reason = "the prompt is given as embeddings, which have no token ids"
        return _same(rids, NotReplayable(kind="prompt-embeds", reason=reason))
    if isinstance(ids, list) and ids and all(isinstance(item, list) for item in ids):
        return [_from_ids(_name(rids, place), item) for place, item in enumerate(ids)]
    if isinstance(ids, list) and ids:
        return [_from_ids(_name(rids, 0), ids)]
    if isinstance(text, list) and text:
        return [_from_text(_name(rids, place), item) for place, item in enumerate(text)]
    if isinstance(text, str):
        return [_from_text(_name(rids, 0), text)]
    if ids is CUT or text is CUT:
        return _same(rids, _cut())
    reason = "the log has no prompt: SGLang writes it at --log-requests-level 2 and above"
    return _same(rids, NotReplayable(kind="no-prompt-logged", reason=reason))


def _same(rids: list[Any], prompt: PromptInput) -> list[Part]:
    return [
        Part(rid=_name(rids, place), prompt=prompt, length=None, is_text=False)
        for place in range(max(1, len(rids)))
    ]


def _name(rids: list[Any], place: int) -> str | None:
    value = rids[place] if place < len(rids) else None
    if value is None and place and rids and isinstance(rids[0], str):
        return f"{rids[0]}-{place}"
    return value if isinstance(value, str) else None


def _from_ids(rid: str | None, ids: list[Any]) -> Part:
    if _MARK in ids:
        return Part(rid=rid, prompt=_cut(), length=None, is_text=False)
    prompt = TokenIds(token_ids=token_ids(ids, "input_ids"))
    return Part(rid=rid, prompt=prompt, length=len(ids), is_text=False)


def _from_text(rid: str | None, text: Any) -> Part:
    if not isinstance(text, str):
        raise RecordError("no-prompt", "`text` holds something else than text")
    if len(text) == 2 * _HALF + len(_MARK) and text[_HALF : _HALF + len(_MARK)] == _MARK:
        return Part(rid=rid, prompt=_cut(), length=None, is_text=True)
    prompt = RawText(text=text)
    return Part(rid=rid, prompt=prompt, length=len(text.encode("utf-8")), is_text=True)


def _cut() -> NotReplayable:
    reason = "the log keeps the first and the last 1,024 of longer prompts (level 2)"
    return NotReplayable(kind="cut-prompt", reason=reason)


def checked(part: Part, usage: Usage) -> PromptInput:
    """Return the part's prompt, unless the server counted more tokens than it has bytes."""
    counted = usage.num_prompt_tokens
    is_counted = part.is_text and part.length is not None and isinstance(counted, int)
    # A tokenizer gives a token a byte at most, and a few special ones.
    if is_counted and isinstance(counted, int) and counted > (part.length or 0) + 16:
        return _cut()
    return part.prompt


def identity_fields(obj: Mapping[str, Any]) -> dict[str, Known[str]]:
    """Return what an `obj` says of the identity; what isn't in it is not recorded."""
    found: dict[str, Known[str]] = {}
    for name in ("cache_salt", "extra_key"):
        value = obj.get(name, UNKNOWN)
        if value is None or isinstance(value, str):
            found[name] = value
    if "lora_path" in obj:
        path = obj["lora_path"]
        if path is None:
            found |= {"lora_name": None, "lora_path": None, "lora_revision": None}
        elif isinstance(path, str):
            found["lora_path"] = path
            if isinstance(obj.get("lora_id"), str):
                # A new id with every load of an adapter.
                found["lora_revision"] = f"lora_id={obj['lora_id']}"
    if "input_embeds" in obj and obj["input_embeds"] is None:
        found["prompt_embeds"] = None
    return found


def session_of(obj: Mapping[str, Any]) -> Known[str]:
    """Return the session's id: SGLang's own sessions, else the key that routers use."""
    params = obj.get("session_params")
    inner = params if isinstance(params, dict) else {}
    own = first_text((obj,), ("session_id",)) or first_text((inner,), ("id",))
    own = own or first_text((obj,), ("routing_key",))
    return UNKNOWN if own is None else own


def reads_cache(obj: Mapping[str, Any]) -> bool:
    """Say whether cached tokens are used: not where log probabilities are asked from token 0."""
    return not (obj.get("return_logprob") is True and obj.get("logprob_start_len") == 0)


def meta_of(out: Any) -> list[Mapping[str, Any]]:
    """Return the `meta_info` of an `out`, one a prompt."""
    outs = out if isinstance(out, list) else [out]
    metas = [item.get("meta_info") for item in outs if isinstance(item, dict)]
    return [meta for meta in metas if isinstance(meta, dict)]


def usage_of(meta: Mapping[str, Any]) -> Usage:
    """Return the usage that a `meta_info` states; cached tokens are inside the prompt's."""
    if not meta:
        return NO_USAGE
    return Usage(
        num_prompt_tokens=known_count(meta, "prompt_tokens"),
        num_cached_tokens=known_count(meta, "cached_tokens"),
        num_completion_tokens=known_count(meta, "completion_tokens"),
    )


def generated_of(out: Any) -> Generated | Unknown:
    """Return the answer's ids, UNKNOWN where they are cut or not logged.

    Text alone is taken where it's whole: it is what the engine generated, before any parser.
    """
    if not isinstance(out, dict):
        return UNKNOWN
    ids = out.get("output_ids")
    if isinstance(ids, list) and ids and _MARK not in ids:
        return TokenIds(token_ids=token_ids(ids, "output_ids"))
    text = out.get("text")
    if isinstance(text, str) and text:
        if len(text) == 2 * _HALF + len(_MARK) and text[_HALF : _HALF + len(_MARK)] == _MARK:
            return UNKNOWN
        return RawText(text=text, add_special_tokens=False)
    return UNKNOWN
