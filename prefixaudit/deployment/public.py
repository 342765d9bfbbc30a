"""Public prefixes: beginnings of prompts that everybody may know; sharing one leaks nothing.

A prefix is declared in one of four ways:

    [[public_prefixes]]
    name = "support system prompt"
    text = "You are …"             # a raw prompt's beginning, encoded by the model's tokenizer;
    text_file = "support.txt"      # or a file that holds it
    message = {role = "system", content = "You are …"}    # a first message, rendered;
    message = {role = "system", content_file = "support.txt"}
    token_ids = [1, 733, 16289]    # ids as the engine sees them
    hash = "9f2c…"                 # a proposal of a report: 32 hex digits
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prefixaudit.tables import Table

_FORMS: Final = ("text", "text_file", "message", "token_ids", "hash")
_HASH: Final = re.compile(r"[0-9a-f]{32}")
_MAX_TOKEN_ID: Final = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicPrefix:
    """One declared prefix; exactly one of the four forms is set.

    `hash` is the first 16 bytes, in hex, of the canonical digest of its last full block.
    """

    name: str
    text: str | None = None
    message: Mapping[str, Any] | None = None
    token_ids: tuple[int, ...] | None = None
    hash: str | None = None


def read_public_prefixes(tables: Sequence[Table], folder: Path) -> tuple[PublicPrefix, ...]:
    """Read the [[public_prefixes]] tables; problems are noted in their document."""
    return tuple(_prefix(table, number, folder) for number, table in enumerate(tables, start=1))


def _prefix(table: Table, number: int, folder: Path) -> PublicPrefix:
    name = table.text("name", default=f"public prefix {number}")
    given = [form for form in _FORMS if form in table]
    if not given:
        table.problem("name", f"declares nothing; expected one of {', '.join(_FORMS)}")
    for form in given[1:]:
        table.problem(form, f"is given beside {given[0]}; give one")
    text = table.text("text", default=None)
    if "text_file" in table:
        text = _file_text(table, "text_file", folder)
    message: dict[str, Any] | None = None
    if "message" in table:
        inner = table.table("message")
        content = inner.text("content", default="")
        if "content_file" in inner:
            content = _file_text(inner, "content_file", folder)
        message = {"role": inner.text("role"), "content": content}
    token_ids = table.integers("token_ids", default=None)
    if token_ids is not None and not all(0 <= token <= _MAX_TOKEN_ID for token in token_ids):
        table.problem("token_ids", f"holds no token id; expected 0 to {_MAX_TOKEN_ID}")
        token_ids = ()
    digest = table.text("hash", default=None)
    if digest is not None and not _HASH.fullmatch(digest):
        table.problem("hash", "is no digest of a prefix; expected 32 hex digits")
    return PublicPrefix(name=name, text=text, message=message, token_ids=token_ids, hash=digest)


def _file_text(table: Table, key: str, folder: Path) -> str:
    path = folder / table.text(key)
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        table.problem(key, f"{path}: can't be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        table.problem(key, f"{path}: byte {error.start} is not UTF-8")
    return ""
