"""How many tokens an image takes in a prompt, for families whose processor's rule is known.

The rules are those of transformers 5.24's processors and their defaults, with what the model
folder's preprocessor_config.json and config.json set:

Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen3.5  `smart_resize` of image_processing_qwen2_vl.py; a token is
    a square of patch_size * merge_size pixels
Gemma 3   processing_gemma3.py: `image_seq_length` (256) soft tokens between two line feeds, a begin
    and an end; no pan-and-scan
LLaVA 1.5 processing_llava.py: a fixed grid of image_size / patch_size squared (CLIP's class token
    stays where the strategy is "full")
Pixtral, Mistral 3  processing_pixtral.py: a token a patch, a break at the end of each row, and an
    end instead of the last break

Other families, audio and video have no rule here: their length is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

Size: TypeAlias = tuple[int, int]
Run: TypeAlias = tuple[tuple[str, int], ...]
"""Tokens as (text, how often), in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRule:
    """The rule of a model.

    placeholder  what the chat template writes for an image
    written      what the server puts in its place before tokenizing
    token        the token in `written` that stands for the image
    tokens       (width, height) or None to the tokens instead of it; None where it can't be said
    """

    family: str
    placeholder: str
    written: str
    token: str
    tokens: Callable[[Size | None], Run | None]


def image_rule(folder: Path) -> ImageRule | None:
    """Return the rule of a model folder, None where its family has none here."""
    config = _object(folder / "config.json")
    processor = _object(folder / "processor_config.json")
    images = {
        **_object(folder / "preprocessor_config.json"),
        **_inner(processor, "image_processor"),
    }
    make = _FAMILIES.get(str(config.get("model_type")))
    return None if make is None else make(config, images, processor)


def smart_resize(size: Size, factor: int, min_pixels: int, max_pixels: int) -> Size | None:
    """Return the (width, height) to which Qwen's processors resize; None where they refuse."""
    width, height = size
    if max(height, width) / min(height, width) > 200:
        return None
    new_height = round(height / factor) * factor
    new_width = round(width / factor) * factor
    if new_height * new_width > max_pixels:
        beta = math.sqrt((height * width) / max_pixels)
        new_height = max(factor, math.floor(height / beta / factor) * factor)
        new_width = max(factor, math.floor(width / beta / factor) * factor)
    elif new_height * new_width < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        new_height = math.ceil(height * beta / factor) * factor
        new_width = math.ceil(width * beta / factor) * factor
    return new_width, new_height


def _qwen(patch_size: int) -> Callable[[Mapping[str, Any], Mapping[str, Any], Any], ImageRule]:
    def make(config: Mapping[str, Any], images: Mapping[str, Any], processor: Any) -> ImageRule:
        factor = _count(images, "patch_size", patch_size) * _count(images, "merge_size", 2)
        size = _inner(images, "size")
        lowest = _count(images, "min_pixels", _count(size, "shortest_edge", 56 * 56))
        highest = _count(images, "max_pixels", _count(size, "longest_edge", 28 * 28 * 1280))
        # The defaults above are the class's; the published folders of Qwen3-VL set their own.
        is_known = images.get("do_resize", True) is True and bool(images)

        def tokens(size: Size | None) -> Run | None:
            if size is None or not is_known:
                return None
            resized = smart_resize(size, factor, lowest, highest)
            if resized is None:
                return None
            return (("<|image_pad|>", (resized[0] // factor) * (resized[1] // factor)),)

        return ImageRule(
            family="Qwen-VL",
            placeholder="<|vision_start|><|image_pad|><|vision_end|>",
            written="<|vision_start|><|image_pad|><|vision_end|>",
            token="<|image_pad|>",
            tokens=tokens,
        )

    return make


def _gemma3(
    config: Mapping[str, Any], images: Mapping[str, Any], processor: Mapping[str, Any]
) -> ImageRule:
    length = _count(processor, "image_seq_length", _count(config, "mm_tokens_per_image", 256))
    pans = images.get("do_pan_and_scan")
    return ImageRule(
        family="Gemma 3",
        placeholder="<start_of_image>",
        written="\n\n<start_of_image><image_soft_token><end_of_image>\n\n",
        token="<image_soft_token>",
        tokens=lambda size: None if pans else (("<image_soft_token>", length),),
    )


def _llava(
    config: Mapping[str, Any], images: Mapping[str, Any], processor: Mapping[str, Any]
) -> ImageRule | None:
    vision = _inner(config, "vision_config")
    side, patch = _count(vision, "image_size", 336), _count(vision, "patch_size", 14)
    strategy = config.get("vision_feature_select_strategy", "default")
    if vision.get("model_type") != "clip_vision_model" or strategy not in ("default", "full"):
        return None
    length = (side // patch) ** 2 + (strategy == "full")
    return ImageRule(
        family="LLaVA",
        placeholder="<image>",
        written="<image>",
        token="<image>",
        tokens=lambda size: (("<image>", length),),
    )


def _pixtral(
    config: Mapping[str, Any], images: Mapping[str, Any], processor: Mapping[str, Any]
) -> ImageRule:
    vision = _inner(config, "vision_config")
    patch = _count(processor, "patch_size", _count(vision, "patch_size", 16))
    merge = _count(processor, "spatial_merge_size", _count(config, "spatial_merge_size", 1))
    edge = patch * merge
    size_setting = _inner(images, "size")
    longest = _count(size_setting, "longest_edge", _count(vision, "image_size", 1024))

    def tokens(size: Size | None) -> Run | None:
        if size is None:
            return None
        width, height = size
        ratio = max(height / longest, width / longest)
        if ratio > 1:
            width, height = math.floor(width / ratio), math.floor(height / ratio)
        columns, rows = (width - 1) // edge + 1, (height - 1) // edge + 1
        runs: list[tuple[str, int]] = []
        for row in range(rows):
            end = "[IMG_END]" if row == rows - 1 else "[IMG_BREAK]"
            runs += [("[IMG]", columns), (end, 1)]
        return tuple(runs)

    return ImageRule(
        family="Pixtral", placeholder="[IMG]", written="[IMG]", token="[IMG]", tokens=tokens
    )


_FAMILIES: Final[Mapping[str, Callable[[Any, Any, Any], ImageRule | None]]] = {
    "qwen2_vl": _qwen(14),
    "qwen2_5_vl": _qwen(14),
    "qwen3_vl": _qwen(16),
    "qwen3_vl_moe": _qwen(16),
    "qwen3_5": _qwen(16),
    "qwen3_5_moe": _qwen(16),
    "gemma3": _gemma3,
    "llava": _llava,
    "pixtral": _pixtral,
    "mistral3": _pixtral,
}


def _object(path: Path) -> Mapping[str, Any]:
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}  # without the file a rule falls back on its family's defaults, or gives None
    return value if isinstance(value, dict) else {}


def _inner(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _count(record: Mapping[str, Any], name: str, default: int) -> int:
    value = record.get(name)
    return value if type(value) is int and value > 0 else default
