"""Width and height of an image from its header: PNG, JPEG, GIF, WebP, BMP. Nothing is decoded.

The orientation that a camera notes in EXIF isn't applied.
"""

from __future__ import annotations

import struct
from typing import Final

_PNG: Final = b"\x89PNG\r\n\x1a\n"
# Start-of-frame markers of JPEG: all of C0 … CF but the tables DHT, JPG and DAC.
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH: Final = frozenset({0x01, *range(0xD0, 0xD8)})


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return (width, height) in pixels, None where the bytes are no image that is known here."""
    try:
        size = _size(data)
    except struct.error:  # cut before the size
        return None
    return size if size is not None and size[0] > 0 and size[1] > 0 else None


def _size(data: bytes) -> tuple[int, int] | None:
    if data.startswith(_PNG) and data[12:16] == b"IHDR":
        width, height = struct.unpack_from(">II", data, 16)
        return width, height
    if data.startswith((b"GIF87a", b"GIF89a")):
        width, height = struct.unpack_from("<HH", data, 6)
        return width, height
    if data.startswith(b"\xff\xd8"):
        return _jpeg(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _webp(data)
    if data.startswith(b"BM") and len(data) > 26:
        width, height = struct.unpack_from("<ii", data, 18)
        return width, abs(height)
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    place = 2
    while place < len(data):
        if data[place] != 0xFF:
            return None
        while place < len(data) and data[place] == 0xFF:  # fill bytes
            place += 1
        if place >= len(data):
            return None
        marker = data[place]
        place += 1
        if marker in _WITHOUT_LENGTH:
            continue
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, place + 3)
            return width, height
        if marker in (0xD9, 0xDA):  # the end, or the picture itself before any frame
            return None
        (length,) = struct.unpack_from(">H", data, place)
        place += max(length, 2)
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
        return (width, height) if len(data) >= 30 else None
    if kind == b"VP8L":
        if data[20:21] != b"\x2f":
            return None
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None
