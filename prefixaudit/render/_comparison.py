"""Two requests side by side where they part, as text for a terminal and as values for JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from prefixaudit.core.why import ComparedRequest, Comparison
from prefixaudit.printable import printable

SCHEMA_VERSION: Final = 1
_FIRST_STRETCHES: Final = 4
_RED, _GREEN, _END = "\x1b[31m", "\x1b[32m", "\x1b[0m"


def comparison_text(found: Comparison, *, width: int = 100, colour: bool = False) -> str:
    """Return the comparison as text of at most `width` columns."""
    lines: list[str] = []
    for indent, line in _lines(found, colour):
        if "\x1b" in line:
            lines.append(line)
            continue
        lines.extend(
            textwrap.wrap(
                line,
                width,
                subsequent_indent=" " * indent,
                break_on_hyphens=False,
                drop_whitespace=True,
            )
            or [""]
        )
    return "\n".join(lines) + "\n"


def comparison_values(found: Comparison) -> dict[str, Any]:
    """Return the comparison as plain values; `text` only where it was asked for."""
    values = asdict(found)
    text = values.pop("text")
    if text is not None:
        values["text"] = {"before": text[0], "earlier": text[1], "later": text[2]}
    values["equal_again"] = [list(stretch) for stretch in found.equal_again]
    return {"schema_version": SCHEMA_VERSION, **values}


def _lines(found: Comparison, colour: bool) -> Iterator[tuple[int, str]]:
    chosen = "" if found.relative_is_given else "  (the one that shares most with it)"
    yield 11, f"  earlier  {_side(found.earlier)}{chosen}"
    yield 11, f"  later    {_side(found.later)}"
    yield 2, ""
    yield from _identity(found)
    yield 2, ""
    shared = found.num_shared_tokens
    if shared:
        yield 2, f"  {'tokens':<7}{_range(0, shared):<20}equal"
    yield from _difference(found)
    yield from _texts(found, colour)
    for start, end in found.equal_again[:_FIRST_STRETCHES]:
        yield (
            29,
            f"  {'tokens':<7}{_range(start, end):<20}equal again, behind another beginning",
        )
    more = len(found.equal_again) - _FIRST_STRETCHES
    if more > 0:
        yield 29, f"  and {more:,} more stretches"
    yield 2, ""
    yield from _blocks(found)
    if found.advice is not None:
        yield 6, f"  do: {printable(found.advice)}"


def _side(side: ComparedRequest) -> str:
    answer = (
        f" and {side.num_cached_answer_tokens:,} of its answer"
        if side.num_cached_answer_tokens
        else ""
    )
    return (
        f"{printable(side.request_id)}  {printable(side.source)}  "
        f"{side.num_prompt_tokens:,} tokens{answer}"
    )


def _identity(found: Comparison) -> Iterator[tuple[int, str]]:
    if found.differing_key_fields:
        names = ", ".join(found.differing_key_fields)
        yield 4, f"  another key: {names} differ, so no block is shared whatever the tokens are"
    elif found.unknown_key_fields:
        names = ", ".join(found.unknown_key_fields)
        yield 4, f"  the same key, as far as is known (unknown: {names})"
    else:
        yield 4, "  the same key"


def _difference(found: Comparison) -> Iterator[tuple[int, str]]:
    shared, later = found.num_shared_tokens, found.later
    if shared >= later.num_prompt_tokens:
        yield 2, f"  the later prompt {found.relation}"
        return
    where = ""
    if found.place is not None:
        where = printable(found.place)
        if found.character is not None:
            where += f", character {found.character}"
        where += f": {found.title}"
    elif shared >= found.earlier.num_prompt_tokens:
        where = "the earlier prompt ends here"
    else:
        where = "differs; nothing behind it was seen before"
    if found.intent == "cost":
        where += " (meant to be so: a cost, not a fault)"
    yield 29, f"  {'token':<7}{shared:<20,}{where}"


def _texts(found: Comparison, colour: bool) -> Iterator[tuple[int, str]]:
    if found.text is None:
        return
    before, earlier, later = (printable(part) for part in found.text)
    red, green, end = (_RED, _GREEN, _END) if colour else ("", "", "")
    yield 11, f"           … {before}"
    yield 11, f"  earlier  {red}{json.dumps(earlier, ensure_ascii=False)}{end}"
    yield 11, f"  later    {green}{json.dumps(later, ensure_ascii=False)}{end}"


def _blocks(found: Comparison) -> Iterator[tuple[int, str]]:
    size = found.block_size
    full = found.later.num_prompt_tokens // size
    parted = found.num_shared_tokens // size
    hit = found.num_hit_tokens // size
    whose = "of the two alone" if found.relative_is_given else "after the log before it"
    yield (
        4,
        f"  {hit:,} of {full:,} blocks hit ({found.num_hit_tokens:,} tokens, {whose}); "
        f"the chains part in block {parted:,}",
    )
    lost = found.num_equal_again_tokens
    if lost:
        yield 4, f"  {lost:,} tokens were seen before and can't be reused behind the difference"


def _range(start: int, end: int) -> str:
    return f"{start:,} … {end - 1:,}"
