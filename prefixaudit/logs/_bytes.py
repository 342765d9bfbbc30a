"""Files as plain UTF-8 bytes: decompression and UTF-16 decoding, in bounded pieces.

What a file is, is decided by its first bytes, never by its name. Nothing here knows of lines.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from typing import BinaryIO, Final

READ_BYTES: Final = 2**22
# What comes out of an archive in one step; damage costs no more than the step it is met in.
_PIECE_BYTES: Final = 2**20
# zstd gives no bound for what one call puts out (a repeated byte costs nothing), so the input is
# fed in small pieces: at most 128 KiB come of every 4 bytes, 64 MiB of these.
_ZSTD_FEED_BYTES: Final = 2**11
_ZSTD_MAX_WINDOW_BYTES: Final = 2**27

# Enough to see how a file is encoded.
_START_BYTES: Final = 64

GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"

Blocks = Iterator[bytes]


class DamagedStreamError(Exception):
    """The rest of a file can't be read; `kind` and `reason` are those of the Skipped it becomes."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


def raw_blocks(handle: BinaryIO, count: Callable[[int], None]) -> Blocks:
    """Yield the file's bytes as they lie on disk, telling `count` how many came."""
    while True:
        try:
            block = handle.read(READ_BYTES)
        except OSError as error:
            raise DamagedStreamError(
                "read-error", f"the file can't be read: {error.strerror}"
            ) from error
        if not block:
            return
        count(len(block))
        yield block


def decompressed(blocks: Blocks, max_bytes: int) -> tuple[Blocks, str | None]:
    """Return plain blocks and the compression found (`gzip`, `zstd` or None).

    Iterating raises DamagedStreamError where the archive is cut or damaged, or where more than
    `max_bytes` come out of it, after all that could be read before.
    """
    first = _at_least(blocks, 4)
    blocks = chain([first], blocks) if first else iter(())
    if first.startswith(GZIP_MAGIC):
        return _limited(_gunzipped(blocks), max_bytes), "gzip"
    if first.startswith(ZSTD_MAGIC):
        return _limited(_unzstd(blocks), max_bytes), "zstd"
    return blocks, None


def as_utf8(blocks: Blocks) -> tuple[Blocks, str]:
    """Return the blocks in UTF-8, without a byte order mark at the start, and the encoding found.

    UTF-16 is known by its mark, or by the NULs beside two ASCII characters at the start. Code units
    that are no text become bytes that are no UTF-8, so that their line is skipped and counted.
    """
    first = _at_least(blocks, _START_BYTES)
    blocks = chain([first], blocks) if first else iter(())
    if first.startswith(codecs.BOM_UTF8):
        return _without_prefix(blocks, len(codecs.BOM_UTF8)), "utf-8-sig"
    if first.startswith(codecs.BOM_UTF16_LE):
        return _from_utf16(_without_prefix(blocks, 2), "utf-16-le"), "utf-16-le"
    if first.startswith(codecs.BOM_UTF16_BE):
        return _from_utf16(_without_prefix(blocks, 2), "utf-16-be"), "utf-16-be"
    for encoding in ("utf-16-le", "utf-16-be"):
        if _begins_as(first, encoding):
            return _from_utf16(blocks, encoding), encoding
    return blocks, "utf-8"


def _begins_as(first: bytes, encoding: str) -> bool:
    """Say whether two ASCII characters stand in `first` as UTF-16 writes them.

    Line ends before them tell nothing: in UTF-8, a NUL instead of a line looks like one of them.
    """
    text = first[: len(first) // 2 * 2].decode(encoding, "replace").lstrip("\r\n")
    return len(text) >= 2 and "\0" < text[0] < "\x80" and "\0" < text[1] < "\x80"


def _at_least(blocks: Blocks, num_bytes: int) -> bytes:
    first = b""
    for block in blocks:
        first += block
        if len(first) >= num_bytes:
            break
    return first


def _without_prefix(blocks: Blocks, num_bytes: int) -> Blocks:
    yield next(blocks)[num_bytes:]
    yield from blocks


def _limited(blocks: Blocks, max_bytes: int) -> Blocks:
    left = max_bytes
    for block in blocks:
        if len(block) > left:
            yield block[:left]
            raise DamagedStreamError(
                "decompression-limit",
                f"more than {max_bytes} bytes come out of the archive; the rest was not read",
            )
        left -= len(block)
        yield block


def _gunzipped(blocks: Blocks) -> Blocks:
    """Decompress gzip members one after another; zero padding between and behind them is legal."""
    member = None
    for block in blocks:
        data = block
        while data:
            if member is None:
                data = data.lstrip(b"\0")
                if not data:
                    break
                member = zlib.decompressobj(wbits=31)
            try:
                plain = member.decompress(data, _PIECE_BYTES)
            except zlib.error as error:
                raise DamagedStreamError("damaged-archive", "the gzip stream is damaged") from error
            if plain:
                yield plain
            if member.eof:
                data, member = member.unused_data, None
            else:
                data = member.unconsumed_tail
    if member is not None:
        yield member.flush()
        raise DamagedStreamError("cut-archive", "the gzip stream ends before its end mark")


def _unzstd(blocks: Blocks) -> Blocks:
    import zstandard

    def new_frame() -> zstandard.ZstdDecompressionObj:
        return zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES).decompressobj()

    frame = None
    for block in blocks:
        for start in range(0, len(block), _ZSTD_FEED_BYTES):
            data = block[start : start + _ZSTD_FEED_BYTES]
            while data:
                frame = frame or new_frame()
                try:
                    plain = frame.decompress(data)
                except zstandard.ZstdError as error:
                    raise DamagedStreamError(
                        "damaged-archive", "the zstd stream is damaged"
                    ) from error
                if plain:
                    yield plain
                data = b""
                if frame.eof:
                    data, frame = frame.unused_data, None
    if frame is not None:
        raise DamagedStreamError("cut-archive", "the zstd stream ends before its end mark")


def _from_utf16(blocks: Blocks, encoding: str) -> Blocks:
    decoder = codecs.getincrementaldecoder(encoding)(errors="surrogatepass")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", errors="surrogatepass")
    rest, _ = decoder.getstate()
    if rest:
        yield b"\xff" * len(rest)
