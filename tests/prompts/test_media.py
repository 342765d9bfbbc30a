"""Media in chats: identity by content, places and lengths in tokens, nothing tokenized as text."""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib.util
import json
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import ChatMessages, MediaSpan, Request, Skipped, Source
from prefixaudit.prompts import Replayer, ReplayOptions, replay_many
from prefixaudit.prompts.image_rules import image_rule, smart_resize
from prefixaudit.prompts.image_sizes import image_size
from prefixaudit.prompts.media import MARK, medium_of, modality_of
from tests.prompts.cases import case_folder

PARTS_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{% if part.type == 'image' %}PLACEHOLDER"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|end|>{% endfor %}"
)
TEXT_TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
# Ids of a byte-level vocabulary: printable ASCII from `!` on, then the rest; 198 is a line feed.
A, B, C, D, N, O_ = (ord(letter) - ord("!") for letter in "abcdno")
LINE_FEED = 198
QWEN = {"placeholder": "<|vision_start|><|image_pad|><|vision_end|>", "model_type": "qwen3_vl"}


def png(width: int, height: int, fill: bytes = b"") -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    return (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk
        + struct.pack(">I", zlib.crc32(chunk)) + fill
    )  # fmt: skip


def image(content: bytes, **fields: Any) -> dict[str, Any]:
    url = "data:image/png;base64," + base64.b64encode(content).decode()
    return {"type": "image_url", "image_url": {"url": url}, **fields}


def model_folder(
    folder: Path,
    *,
    model_type: str = "qwen3_vl",
    placeholder: str = QWEN["placeholder"],
    template: str = PARTS_TEMPLATE,
    config: dict[str, Any] | None = None,
    images: dict[str, Any] | None = None,
) -> Path:
    """A model of one token a byte, with the special tokens that a family's placeholders need."""
    tokenizer = json.loads((case_folder("B001") / "tokenizer.json").read_text())
    specials = (
        "<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<image>", "<start_of_image>",
        "<image_soft_token>", "<end_of_image>", "[IMG]", "[IMG_BREAK]", "[IMG_END]",
    )  # fmt: skip
    for number, text in enumerate(specials, 271):
        added = {**tokenizer["added_tokens"][0], "id": number, "content": text}
        tokenizer["added_tokens"].append(added)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").write_text(template.replace("PLACEHOLDER", placeholder))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, **(config or {})}))
    if images is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(images))
    return folder


def replay(folder: Path, *content: Any, **fields: Any) -> Prompt:
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    chat = ChatMessages(
        messages=[{"role": "user", "content": parts}], add_generation_prompt=False, **fields
    )
    request = Request(request_id="r", source=Source("log", 1), prompt=chat)
    prompt = Replayer(folder).replay(request)
    assert isinstance(prompt, Prompt), prompt
    return prompt


def ids_of(prompt: Prompt) -> list[int]:
    assert isinstance(prompt.tokens, np.ndarray)
    numbers: list[int] = prompt.tokens.tolist()
    return numbers


# --- sizes from headers


def jpeg(width: int, height: int) -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", 40_000) + b"\xff\xc0\0" * 13_332 + b"\0\0"
    tables = b"\xff\xc4\x00\x04\0\0" + b"\xff\xdb\x00\x03\0"
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, height, width, 3) + b"\x01\x11\0"
    return b"\xff\xd8" + exif + tables + b"\xff\xff" + frame[1:] + b"\xff\xda"


def webp(kind: bytes, rest: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + kind + struct.pack("<I", len(rest)) + rest


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (png(640, 480), (640, 480)),
        (b"GIF89a" + struct.pack("<HH", 300, 200) + b"\0", (300, 200)),
        (jpeg(1280, 720), (1280, 720)),
        (webp(b"VP8X", b"\0\0\0\0" + b"\xff\x03\0" + b"\x57\x02\0"), (1024, 600)),
        (webp(b"VP8L", b"\x2f" + struct.pack("<I", 799 | (599 << 14))), (800, 600)),
        (webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 176, 144)), (176, 144)),
        (b"BM" + b"\0" * 16 + struct.pack("<ii", 50, -60) + b"\0" * 8, (50, 60)),
        (b"", None),
        (b"\xff\xd8\xff\xda", None),
        (png(640, 480)[:20], None),
        (png(0, 480), None),
        (b"\0" * 1000, None),
    ],
)
def test_size_is_read_from_the_header(data: bytes, size: tuple[int, int] | None) -> None:
    assert image_size(data) == size


@given(st.sampled_from([png(9, 9), jpeg(9, 9), webp(b"VP8X", b"\0" * 20)]), st.data())
def test_damaged_header_gives_a_size_or_none(data: bytes, draw: Any) -> None:
    place = draw.draw(st.integers(0, len(data) - 1))
    size = image_size(data[:place] + draw.draw(st.binary(max_size=4)) + data[place + 1 :])

    assert size is None or (size[0] > 0 and size[1] > 0)


# --- rules of families


def _smart_resize_of_transformers() -> Any:
    """The function itself, out of transformers' source: its module wants PyTorch when imported."""
    [folder] = importlib.util.find_spec("transformers").submodule_search_locations  # type: ignore[union-attr,misc]
    source = Path(folder, "models/qwen2_vl/image_processing_qwen2_vl.py").read_text()
    function = next(
        node for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == "smart_resize"
    )  # fmt: skip
    names: dict[str, Any] = {"math": math}
    exec(compile(ast.Module([function], []), "smart_resize", "exec"), names)
    return names["smart_resize"]


ORACLE = _smart_resize_of_transformers()


@given(
    st.integers(1, 9000), st.integers(1, 9000), st.sampled_from([28, 32]),
    st.sampled_from([(3136, 1003520), (65536, 16777216), (200704, 401408)]),
)  # fmt: skip
def test_resizing_is_that_of_transformers(
    width: int, height: int, factor: int, bounds: tuple[int, int]
) -> None:
    try:
        expected = ORACLE(height, width, factor, *bounds)[::-1]
    except ValueError:
        expected = None

    assert smart_resize((width, height), factor, *bounds) == expected


def _length(folder: Path, size: tuple[int, int] | None) -> int | None:
    rule = image_rule(folder)
    assert rule is not None
    run = rule.tokens(size)
    return None if run is None else sum(times for _, times in run)


def test_lengths_of_families(tmp_path: Path) -> None:
    """Qwen2-VL: 1024 x 1024 is scaled to 980 x 980 at 28 pixels a token, by hand. LLaVA 1.5's 576
    and Gemma 3's 256 are the published figures. Pixtral: 64 rows of 64 and an end, by hand.
    """
    qwen = model_folder(tmp_path, model_type="qwen2_vl", images={"patch_size": 14})
    assert _length(qwen, (1024, 1024)) == 35 * 35
    assert _length(qwen, None) is None
    qwen3 = model_folder(
        tmp_path, images={"patch_size": 16, "size": {"shortest_edge": 65536, "longest_edge": 2**24}}
    )
    assert _length(qwen3, (1024, 1024)) == 32 * 32
    (tmp_path / "preprocessor_config.json").unlink()
    assert _length(model_folder(tmp_path), (1024, 1024)) is None, "the bounds aren't known"
    vision = {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14}
    llava = model_folder(tmp_path, model_type="llava", config={"vision_config": vision})
    assert _length(llava, None) == 576
    assert _length(model_folder(tmp_path, model_type="gemma3"), None) == 256
    pixtral = model_folder(tmp_path, model_type="pixtral")
    assert _length(pixtral, (1024, 1024)) == 64 * 65
    assert _length(pixtral, (2048, 1024)) == 32 * 65, "the longest edge is 1024"
    assert image_rule(model_folder(tmp_path, model_type="internvl")) is None


# --- in prompts

QWEN_IMAGES = {"patch_size": 16, "size": {"shortest_edge": 65536, "longest_edge": 2**24}}


def test_image_takes_its_tokens_where_the_template_puts_it(tmp_path: Path) -> None:
    """320 x 256 pixels are 10 x 8 tokens of 32 x 32 pixels."""
    folder = model_folder(tmp_path, images=QWEN_IMAGES)
    picture = png(320, 256, b"x")

    prompt = replay(folder, {"type": "text", "text": "ab"}, image(picture), "cd")

    assert ids_of(prompt) == [260, A, B, 271, *[272] * 80, 273, C, D, 257]
    digest = hashlib.sha256(picture).hexdigest()
    assert prompt.media == (MediaSpan(identifier=f"sha256:{digest}", offset=4, num_tokens=80),)
    assert prompt.num_prompt_tokens == 88
    assert not prompt.is_approximate


def test_two_images_keep_their_order(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, images=QWEN_IMAGES)

    prompt = replay(folder, image(png(320, 256)), "x", image(png(512, 512)))

    assert [(span.offset, span.num_tokens) for span in prompt.media] == [(2, 80), (85, 256)]
    assert ids_of(prompt).count(272) == 336


def test_template_that_takes_text_only_gets_the_placeholder_before_it(tmp_path: Path) -> None:
    """As vLLM does for templates whose content is text."""
    folder = model_folder(tmp_path, images=QWEN_IMAGES, template=TEXT_TEMPLATE)

    prompt = replay(folder, {"type": "text", "text": "a"}, image(png(256, 256)))

    assert ids_of(prompt) == [260, 271, *[272] * 64, 273, LINE_FEED, A, 257]


def test_family_with_text_around_its_placeholder(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, model_type="gemma3", placeholder="<start_of_image>")

    prompt = replay(folder, image(b"whatever"), "a")

    assert ids_of(prompt) == [
        260,
        LINE_FEED,
        LINE_FEED,
        275,
        *[276] * 256,
        277,
        LINE_FEED,
        LINE_FEED,
        A,
        257,
    ]
    assert not prompt.is_approximate


def test_rows_of_patches(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, model_type="pixtral", placeholder="[IMG]")

    prompt = replay(folder, image(png(48, 32)))

    assert ids_of(prompt) == [260, 278, 278, 278, 279, 278, 278, 278, 280, 257]
    assert [(span.offset, span.num_tokens) for span in prompt.media] == [(1, 8)]


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        (image(b"no picture"), False),
        (image(png(64, 64)), True),
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, False),
    ],
)
def test_unknown_length_is_one_token_and_approximate(
    tmp_path: Path, part: dict[str, Any], changes: bool
) -> None:
    folder = model_folder(tmp_path, images=QWEN_IMAGES)

    prompt = replay(folder, "ab", part, changes_media=changes)

    assert prompt.is_approximate
    [span] = prompt.media
    assert span.num_tokens == 1


@pytest.mark.parametrize("template", [PARTS_TEMPLATE, TEXT_TEMPLATE])
@pytest.mark.parametrize("kind", ["image_url", "input_audio", "video_url"])
def test_medium_without_a_rule_keeps_its_place_and_identity(
    tmp_path: Path, template: str, kind: str
) -> None:
    folder = model_folder(tmp_path, model_type="harbor", template=template)
    value: Any = {"data": "AAAA", "format": "wav"} if kind == "input_audio" else {"url": "x:y"}

    prompt = replay(folder, "ab", {"type": kind, kind: value}, "cd")

    letters = [number for number in ids_of(prompt) if number < 256 and number != LINE_FEED]
    assert letters == [A, B, C, D], "no mark, no address"
    assert prompt.is_approximate
    [span] = prompt.media
    assert 3 <= span.offset <= 4


def test_placeholders_that_do_not_match_leave_nothing_to_share(tmp_path: Path) -> None:
    """A client that writes the placeholder itself: no telling which is the picture."""
    folder = model_folder(tmp_path, images=QWEN_IMAGES)

    prompt = replay(folder, "<|image_pad|>", image(png(64, 64)))

    assert prompt.is_approximate
    assert [span.offset for span in prompt.media] == [0]


def test_mark_in_a_prompt_is_no_medium(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, model_type="harbor")

    prompt = replay(folder, "a" + MARK, image(b"x"))

    assert [span.offset for span in prompt.media] == [0]


def test_refusals_are_text_and_unknown_parts_are_said(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, template=TEXT_TEMPLATE)

    refused = replay(folder, {"type": "refusal", "refusal": "no"})
    unknown = replay(folder, {"type": "hologram", "hologram": 1}, "a")

    assert ids_of(refused) == [260, N, O_, 257]
    assert not refused.is_approximate
    assert unknown.is_approximate


# --- identity


def test_equal_content_is_one_identity_however_it_is_written() -> None:
    content = png(3, 4)
    text = base64.b64encode(content).decode()
    anthropic = {"type": "image", "source": {"type": "base64", "data": text}}
    percent = "data:image/png," + "".join(f"%{byte:02x}" for byte in content)
    parts: list[dict[str, Any]] = [
        image(content), image(content, uuid="u-1"), anthropic,
        {"type": "input_image", "image_url": f"data:image/png;base64,{text}"},
        {"type": "image_url", "image_url": {"url": percent, "detail": "low"}},
    ]  # fmt: skip

    identifiers = {medium_of(part, "image").identifier for part in parts}

    assert identifiers == {f"sha256:{hashlib.sha256(content).hexdigest()}"}


def test_what_has_no_content_is_known_by_its_name_alone() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": None, "uuid": "u-1"},
        {"type": "file", "file": {"file_id": "f-1"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]
    prefixes = [medium_of(part, "image").identifier.partition(":")[0] for part in parts]

    assert prefixes == ["uuid", "id", "url"]
    assert not any("example" in medium_of(part, "image").identifier for part in parts)


def test_text_is_no_medium() -> None:
    assert modality_of({"type": "text", "text": "image_url"}) is None
    assert modality_of("image") is None
    assert modality_of({"image_url": "https://x"}) == "image"


def test_huge_data_url_is_hashed_and_never_tokenized(tmp_path: Path) -> None:
    """Case B060's line: 9,000,000 base64 characters, 6,750,000 bytes of zeros."""
    folder = model_folder(tmp_path, images=QWEN_IMAGES)
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9_000_000}}
    chat = ChatMessages(messages=[{"role": "user", "content": [part]}])
    request = Request(request_id="r", source=Source("log", 1), prompt=chat)

    run = replay_many([request], folder, ReplayOptions())
    [prompt] = list(run)

    assert not isinstance(prompt, Skipped)
    assert prompt.num_prompt_tokens < 10
    assert prompt.media[0].identifier == f"sha256:{hashlib.sha256(bytes(6_750_000)).hexdigest()}"
    assert run.statistics.num_media == 1
    assert run.statistics.num_media_bytes == 6_750_000


def test_character_of_a_token_behind_an_image(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, images=QWEN_IMAGES)
    chat = ChatMessages(
        messages=[{"role": "user", "content": [image(png(320, 256)), {"text": "xyz"}]}]
    )
    request = Request(request_id="r", source=Source("log", 1), prompt=chat)
    replayer = Replayer(folder)
    text = replayer.render(request).text

    assert text[replayer.character_of(request, 84)] == "y"
    assert text[replayer.character_of(request, 0)] == "<"


_PART_KEYS = st.sampled_from(
    ["type", "text", "image_url", "url", "uuid", "data", "source", "file", "file_id", "input_audio",
     "image", "video_url", "refusal", "detail"]
)  # fmt: skip
_PART_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=5),
    st.sampled_from(
        ["image", "image_url", "text", "file", "video", "data:image/png;base64,AAAA",
         "data:,%zz%41", "data:image/png;base64,*", "https://x", "<|image_pad|>", MARK]
    ),
)  # fmt: skip
_PARTS = st.recursive(
    _PART_LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_PART_KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def replayers(tmp_path_factory: pytest.TempPathFactory) -> list[Replayer]:
    folders = [tmp_path_factory.mktemp(name) for name in ("qwen", "gemma", "unknown", "text")]
    model_folder(folders[0], images=QWEN_IMAGES)
    model_folder(folders[1], model_type="gemma3", placeholder="<start_of_image>")
    model_folder(folders[2], model_type="harbor")
    model_folder(folders[3], images=QWEN_IMAGES, template=TEXT_TEMPLATE)
    return [Replayer(folder) for folder in folders]


@settings(max_examples=150, deadline=None)
@given(content=st.lists(_PARTS, max_size=4))
def test_any_content_is_replayed_or_refused(replayers: list[Replayer], content: list[Any]) -> None:
    chat = ChatMessages(messages=[{"role": "user", "content": content}])
    request = Request(request_id="r", source=Source("log", 1), prompt=chat)

    for replayer in replayers:
        prompt = replayer.replay(request)
        if isinstance(prompt, Skipped):
            continue
        for span in prompt.media:
            assert 0 <= span.offset < span.offset + span.num_tokens <= prompt.num_prompt_tokens
