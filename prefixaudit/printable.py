"""Makes text from outside safe to print: a log or a file name can't steer the terminal.

Control characters (C0, C1, DEL), line separators, bidirectional overrides and lone surrogates are
written as escapes. Nothing here is markup, and nothing is shortened.
"""

from __future__ import annotations

import re
from typing import Final

# C0 and C1 controls with DEL, U+2028/2029, the bidirectional controls, zero-width and tag
# characters that hide text, and what UTF-8 can't encode.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def printable(text: str) -> str:
    """Return `text` on one line with everything that could steer a terminal escaped."""
    return _UNSAFE.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Return `text` with its line feeds kept and everything else escaped as in `printable`."""
    return "\n".join(printable(line) for line in text.split("\n"))
