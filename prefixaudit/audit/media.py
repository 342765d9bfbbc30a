"""How a tier's key tells media apart, and prompts as such a key sees them.

full        each medium by its whole identifier and its place
identifier  each block by the identifiers that overlap it, without their place (vLLM 0.7 to 0.18)
16-bit      each medium by 16 bits of its identifier, and its place (LMCache up to 0.5.4)
none        tokens alone
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from prefixaudit.core.engine import Tier
from prefixaudit.core.prompt import MediaSpan

MediaForm: TypeAlias = Literal["full", "identifier", "16-bit", "none"]
_NARROW_MASK: Final = 0xFFFF


def media_form_of(tier: Tier) -> MediaForm:
    """Return the form in which a tier's key holds media."""
    if not tier.media_in_key:
        return "none"
    form = "" if tier.hash is None else tier.hash.forms.get("media", "")
    if form == "identifier":
        return "identifier"
    return "16-bit" if form == "16-bit" else "full"


def media_as(
    form: MediaForm, media: Sequence[MediaSpan], *, block_size: int
) -> tuple[MediaSpan, ...]:
    """Return media that are equal in the chain where a key of this form takes them for equal."""
    if form == "full":
        return tuple(media)
    if form == "none":
        return ()
    if form == "16-bit":
        return tuple(
            MediaSpan(
                identifier=_narrow(span.identifier),
                offset=span.offset,
                num_tokens=span.num_tokens,
            )
            for span in media
        )
    in_block: dict[int, list[str]] = {}
    for span in sorted(media, key=lambda span: span.offset):
        last = span.offset + span.num_tokens - 1
        for block in range(span.offset // block_size, last // block_size + 1):
            in_block.setdefault(block, []).append(span.identifier)
    return tuple(
        MediaSpan(identifier="\0".join(names), offset=block * block_size, num_tokens=block_size)
        for block, names in sorted(in_block.items())
    )


def _narrow(identifier: str) -> str:
    """Return the last 16 bits of an identifier; the release takes hexadecimal ones only."""
    try:
        return f"16 bits: {int(identifier, 16) & _NARROW_MASK}"
    except ValueError:
        return identifier
