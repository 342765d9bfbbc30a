"""Media in chats: taken out of the messages, known by a digest of their content, put into the ids.

A data URL is never rendered or tokenized as text: the server hands the template a part that says
`image` and nothing else (vLLM and SGLang), and so is done here. What stands for it in the prompt is
expanded to as many tokens as the family's processor makes of it (see image_rules). Where that isn't
known, one token stands for it and the prompt is approximate; its content is in the identity all the
same, from its place on.

An identifier names content that the log has (`sha256:`), or else what the client called it by
(`uuid:`, `id:`, `url:`), digested: two pictures behind one address can't be told apart.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote_to_bytes

import numpy as np

from prefixaudit.core.request import MediaSpan, TokenArray
from prefixaudit.prompts.image_rules import ImageRule, Size
from prefixaudit.prompts.image_sizes import image_size

Modality: TypeAlias = Literal["image", "audio", "video", "file"]

# Where a medium stands in a text whose place isn't written by the template: private-use characters.
MARK: Final = "\ue0f1\ue0f2\ue0f1"

_DATA_URL: Final = re.compile(r"data:[^,;]{0,200}(;[^,]{0,200})?,", re.IGNORECASE)
_MODALITIES: Final[Mapping[str, Modality]] = {
    "image": "image", "image_url": "image", "input_image": "image", "image_embeds": "image",
    "image_pil": "image", "audio": "audio", "audio_url": "audio", "input_audio": "audio",
    "audio_embeds": "audio", "video": "video", "video_url": "video", "input_video": "video",
    "file": "file", "input_file": "file", "document": "file",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Medium:
    """One medium of a chat. `num_bytes` of its content and `size` are None where unknown."""

    modality: Modality
    identifier: str
    num_bytes: int | None
    size: Size | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Token ids with their media in place; approximate where a length or place isn't known."""

    token_ids: TokenArray
    media: tuple[MediaSpan, ...]
    is_approximate: bool


def modality_of(part: Any) -> Modality | None:
    """Return what kind of medium a content part is; None for text and what isn't known."""
    if not isinstance(part, Mapping):
        return None
    kind = part.get("type")
    if isinstance(kind, str) and kind in _MODALITIES:
        return _MODALITIES[kind]
    if kind is None:  # vLLM takes parts that name no type
        return next((_MODALITIES[name] for name in _MODALITIES if name in part), None)
    return None


def medium_of(part: Mapping[str, Any], modality: Modality) -> Medium:
    """Return a content part's medium; its content is read where the log has it."""
    value = _value(part)
    if isinstance(value, str) and (content := _content(value, part)) is not None:
        digest = hashlib.sha256(content).hexdigest()
        size = image_size(content) if modality == "image" else None
        return Medium(
            modality=modality,
            identifier=f"sha256:{digest}",
            num_bytes=len(content),
            size=size,
        )
    for name, prefix in (("uuid", "uuid"), ("file_id", "id"), ("id", "id")):
        for place in (part, part.get("file"), part.get("source")):
            if isinstance(place, Mapping) and isinstance(place.get(name), str):
                return _named(modality, prefix, place[name])
    text = value if isinstance(value, str) else repr(sorted(part.items(), key=str))
    return _named(modality, "url", text)


def media_of(messages: Sequence[Any]) -> tuple[Medium, ...]:
    """Return the media of a chat, in order."""
    found = []
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        if isinstance(content, list):
            for part in content:
                if (modality := modality_of(part)) is not None:
                    found.append(medium_of(part, modality))
    return tuple(found)


def num_characters(content: Any) -> int:
    """Return about how many characters a message's content holds, its media included."""
    if isinstance(content, str):
        return len(content)
    if not isinstance(content, list):
        return 0
    total = 0
    for part in content:
        if isinstance(part, str):
            total += len(part)
        elif isinstance(part, Mapping):
            text = part.get("text")
            value = text if isinstance(text, str) else _value(part)
            total += len(value) if isinstance(value, str) else 64
    return total


def _value(part: Mapping[str, Any]) -> Any:
    """Return the URL, base64 text or address in a part of any of the APIs' shapes."""
    for name in (*_MODALITIES, "source"):
        value = part.get(name)
        if isinstance(value, Mapping):
            for inner in ("url", "data", "file_data", "file_id", "uuid"):
                if isinstance(value.get(inner), str):
                    return value[inner]
        elif isinstance(value, str):
            return value
    for inner in ("url", "data", "file_data"):
        if isinstance(part.get(inner), str):
            return part[inner]
    return None


def _content(value: str, part: Mapping[str, Any]) -> bytes | None:
    """Return the bytes of a data URL or of base64 text; None for an address."""
    match = _DATA_URL.match(value)
    if match is not None:
        if (match[1] or "").lower().endswith(";base64"):
            return _from_base64(value[match.end() :])
        return unquote_to_bytes(value[match.end() :])
    for name in ("input_audio", "file", "source"):
        inner = part.get(name)
        if isinstance(inner, Mapping):
            for place in ("data", "file_data"):
                if inner.get(place) is value:
                    return _from_base64(value)
    return None


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):  # damaged: the text itself is the content
        return text.encode("utf-8", "surrogatepass")


def _named(modality: Modality, prefix: str, name: str) -> Medium:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return Medium(modality=modality, identifier=f"{prefix}:{digest}", num_bytes=None, size=None)


def placed(
    text: str,
    media: Sequence[Medium],
    rule: ImageRule | None,
    encode: Callable[[str], TokenArray],
    token_id: Callable[[str], int | None],
) -> Placed:
    """Tokenize a rendered text and put its media in place.

    `encode` gives a text's ids, `token_id` the id of one token's text. Without a rule media stand
    at MARKs. Where placeholders and media don't match, all media count from the first token on.
    """
    if rule is None:
        return _at_marks(text, media, encode)
    if rule.written != rule.placeholder:
        text = text.replace(rule.placeholder, rule.written)
    ids = encode(text)
    stand_in = token_id(rule.token)
    places = np.flatnonzero(ids == stand_in) if stand_in is not None else np.empty(0, np.int64)
    if len(places) != len(media):
        return _somewhere(ids, media)
    pieces: list[TokenArray] = []
    spans: list[MediaSpan] = []
    start = length = 0
    is_approximate = False
    for place, medium in zip(places.tolist(), media, strict=True):
        run = rule.tokens(medium.size)
        numbers = None if run is None else [(token_id(token), times) for token, times in run]
        if numbers is None or any(number is None for number, _ in numbers):
            is_approximate = True
            numbers = [(stand_in, 1)]
        expanded = np.concatenate(
            [np.full(times, number, dtype=np.uint32) for number, times in numbers]
        )
        pieces += [ids[start:place], expanded]
        length += place - start
        spans.append(
            MediaSpan(identifier=medium.identifier, offset=length, num_tokens=len(expanded))
        )
        length += len(expanded)
        start = place + 1
    joined = np.concatenate([*pieces, ids[start:]]).astype(np.uint32, copy=False)
    joined.flags.writeable = False
    return Placed(token_ids=joined, media=tuple(spans), is_approximate=is_approximate)


def _at_marks(text: str, media: Sequence[Medium], encode: Callable[[str], TokenArray]) -> Placed:
    parts = text.split(MARK)
    ids = encode("".join(parts))
    if len(parts) != len(media) + 1:
        return _somewhere(ids, media)
    spans = []
    offset = 0
    for part, medium in zip(parts, media, strict=False):
        offset += len(encode(part)) if part else 0
        place = min(offset, max(0, len(ids) - 1))
        spans.append(MediaSpan(identifier=medium.identifier, offset=place, num_tokens=1))
    return Placed(token_ids=ids, media=tuple(spans), is_approximate=True)


def _somewhere(ids: TokenArray, media: Sequence[Medium]) -> Placed:
    spans = tuple(
        MediaSpan(identifier=medium.identifier, offset=0, num_tokens=1) for medium in media
    )
    return Placed(token_ids=ids, media=spans, is_approximate=True)
