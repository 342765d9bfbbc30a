"""Content parts as servers hand them to templates, and as one text for templates without parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from prefixaudit.prompts.media import MARK, modality_of

IMAGE: Final[Mapping[str, Any]] = {"type": "image"}
_MARK: Final[Mapping[str, Any]] = {"type": "text", "text": MARK}


def part_for_template(part: Any, image_placeholder: str | None) -> Any:
    """Return a content part as templates get it; None for what is neither text nor media.

    Media become `{"type": "image"}`, or a MARK where no placeholder is known.
    """
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return None
    if isinstance(part.get("text"), str):
        return part
    # vLLM takes the text of a refusal, and of thinking that stands in a part.
    kind = part.get("type")
    if kind in ("refusal", "thinking") and isinstance(part.get(kind), str):
        return {"type": "text", "text": part[kind]}
    if modality_of(part) is not None:
        return _MARK if image_placeholder is None else IMAGE
    return None


def joined(
    parts: Sequence[Any],
    separator: str,
    image_placeholder: str | None,
    *,
    keeps_empty: bool = True,
    ends_line: bool = False,
) -> str:
    """Return the parts' text. `keeps_empty`: an empty part still gets its separator.

    Images that the text doesn't name yet stand before it, each on its line (vLLM,
    `_get_full_multimodal_text_prompt`); `ends_line`: the last one's ends though no text follows.
    """
    texts = [part if isinstance(part, str) else part.get("text") for part in parts if part]
    text = separator.join(text for text in texts if (text if not keeps_empty else text is not None))
    if image_placeholder is None:
        return text
    num_images = sum(part is IMAGE for part in parts) - text.count(image_placeholder)
    lines = [image_placeholder] * num_images
    return "\n".join([*lines, text] if text or ends_line else lines)
