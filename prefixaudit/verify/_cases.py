"""What the kinds of hash vectors share: labels, sequences, and fields that aren't understood."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prefixaudit.verify._verifier import Tally

_LARGE = ("hashes", "page_hashes", "block_hashes", "chunks", "chunk_hashes", "keys", "token_ids")


def label(number: int, case: Mapping[str, Any]) -> str:
    """Name a case by its place and its short settings."""
    settings = [
        f"{name}={value}"
        for name, value in case.items()
        if name not in _LARGE and isinstance(value, str | int) and len(str(value)) <= 40
    ]
    return f"{number} ({', '.join(settings)})"


def sequence(data: Mapping[str, Any], case: Mapping[str, Any]) -> list[int]:
    """Return the token ids of a case. Raises KeyError if its sequence isn't in the file."""
    token_ids: list[int] = data["sequences"][case["seq"]]
    return token_ids


def note_unknown_fields(case: Mapping[str, Any], known: Iterable[str], tally: Tally) -> None:
    """Say which fields of a case aren't understood: what they ask for isn't checked."""
    unknown = sorted(set(case) - set(known))
    if unknown:
        tally.leave_out(f"fields not understood, so not checked: {', '.join(unknown)}")


def plain(value: object) -> object:
    """Return a key as the files write it: tuples as lists, bytes as {"bytes": hex}."""
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value


def number_or_hex(value: Any) -> str:
    """Return a recorded hash as text: hex of a digest, or a decimal integer."""
    if isinstance(value, Mapping):
        return str(value["int"])
    return str(value)
