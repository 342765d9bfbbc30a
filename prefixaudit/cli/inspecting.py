"""An Inspection as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from prefixaudit.cli.tables import WIDTH, Table, labelled, lines_of
from prefixaudit.core.inspection import FieldCoverage, InspectedFile, InspectedTimes, Inspection
from prefixaudit.printable import printable
from prefixaudit.wording import plural

SCHEMA_VERSION = 1
_FIRST_FILES = 20
_EPOCH_S = 1e8  # what lies below is a trace's own clock


def as_values(inspection: Inspection) -> dict[str, Any]:
    """Return the inspection as plain values, ready for any serializer."""
    return {"schema_version": SCHEMA_VERSION, **asdict(inspection)}


def lines(inspection: Inspection) -> Iterator[str]:
    """Yield the text for a terminal; no prompt text, salt, tenant or user is in it."""
    num_records = sum(file.num_records for file in inspection.files)
    num_skipped = sum(damage.num_records for damage in inspection.skipped)
    yield (
        f"prefixaudit {inspection.version} · {plural(len(inspection.files), 'file')}, "
        f"{plural(num_records, 'record')}: {plural(inspection.num_requests, 'request')}, "
        f"{num_skipped:,} skipped"
    )
    yield from _times(inspection.times, inspection.num_requests)
    yield ""
    yield "FILES"
    for file in inspection.files[:_FIRST_FILES]:
        yield from _file(file)
    if len(inspection.files) > _FIRST_FILES:
        yield f"  and {len(inspection.files) - _FIRST_FILES:,} more (--format json)"
    for path in inspection.ignored_files[:3]:
        yield from _wrapped(f"  {printable(path)}: no log by name or content", 4)
    yield from _prompts(inspection)
    yield from _fields(inspection)
    yield from _damage(inspection)
    for head, sentences in (
        ("THE ANALYSIS CAN SAY", inspection.can),
        ("IT CAN'T SAY", inspection.cannot),
    ):
        if sentences:
            yield ""
            yield head
            for sentence in sentences:
                yield from _wrapped(f"  - {printable(sentence)}", 4)


def _times(times: InspectedTimes, num_requests: int) -> Iterator[str]:
    if times.first_s is None or times.last_s is None:
        if num_requests:
            yield "no request has a time"
        return
    span = times.last_s - times.first_s
    between = ""
    if times.first_s >= _EPOCH_S:
        first, last = (_moment(second) for second in (times.first_s, times.last_s))
        between = f", {first} to {last} UTC"
    said = f"{times.num_known:,} of {num_requests:,} requests have a time: {span:,.0f} s{between}"
    if times.num_backwards:
        said += f"; {times.num_backwards:,} come before the one above them"
    yield from _wrapped(said, 2)


def _moment(second: float) -> str:
    try:
        return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{second:.0f} s"


def _file(file: InspectedFile) -> Iterator[str]:
    if file.problem is not None:
        yield from _wrapped(f"  {printable(file.path)}: {printable(file.problem)}", 4)
        return
    name = file.format or "empty"
    sure = ""
    if file.claims:
        (_, best), *others = file.claims
        sure = f", {100 * best:.0f} % sure"
        if others:
            sure += f" (next: {others[0][0]}, {100 * others[0][1]:.0f} %)"
    elif file.format is not None:
        sure = ", as named"
    parts = [f"{name}{sure}", plural(file.num_records, "record")]
    if file.compression is not None:
        parts.append(file.compression)
    if file.encoding not in (None, "utf-8"):
        parts.append(str(file.encoding))
    if file.num_skipped:
        parts.append(f"{file.num_skipped:,} skipped")
    if file.num_set_aside:
        parts.append(f"{file.num_set_aside:,} records belong to others")
    if file.num_other_lines:
        parts.append(f"{file.num_other_lines:,} lines are no records")
    if file.num_readings:
        parts.append(plural(file.num_readings, "engine reading"))
    yield from _wrapped(f"  {printable(file.path)}: {', '.join(parts)}", 4)
    for note in file.notes:
        yield from _wrapped(f"    {printable(note)}", 6)


def _prompts(inspection: Inspection) -> Iterator[str]:
    rows = [(kind, f"{count:,}") for kind, count in inspection.prompt_kinds]
    rows += [(f"not in the log: {kind}", f"{n:,}") for kind, n in inspection.not_replayable]
    if inspection.num_media:
        rows.append(("images and other media", f"{inspection.num_media:,}"))
    if inspection.num_large:
        rows.append(
            (
                "a million characters or more",
                f"{plural(inspection.num_large, 'request')}, up to "
                f"{inspection.largest_characters:,}",
            )
        )
    if inspection.num_repeated_ids:
        rows.append(("with an id that came before", f"{inspection.num_repeated_ids:,}"))
    if rows:
        yield ""
        yield "PROMPTS"
        yield from labelled(rows)


def _fields(inspection: Inspection) -> Iterator[str]:
    if not inspection.num_requests:
        return
    total = inspection.num_requests
    known = [item for item in inspection.fields if item.num_unknown < total]
    unknown = [item.field for item in inspection.fields if item.num_unknown == total]
    if known:
        yield ""
        yield from lines_of(
            Table(
                heads=("FIELD", "present", "absent", "unknown", "values"),
                rows=tuple(_row(item) for item in known),
                right=frozenset((1, 2, 3)),
            )
        )
    if unknown:
        yield from _wrapped(f"unknown for every request: {', '.join(unknown)}", 2)
    if inspection.headers:
        names = ", ".join(f"{printable(name)} ({count:,})" for name, count in inspection.headers)
        yield from _wrapped(f"headers, with the number of their values: {names}", 2)


def _row(item: FieldCoverage) -> tuple[str, ...]:
    values = ""
    if item.constant is not None:
        values = f"always {item.constant}"
    elif item.num_values == 1:
        values = "one value" if item.num_absent or item.num_unknown else "one value for all"
    elif item.num_values:
        values = f"{item.num_values:,}{' or more' if item.is_bounded else ''} values"
    counts = (item.num_present, item.num_absent, item.num_unknown)
    return (item.field, *(f"{count:,}" for count in counts), values)


def _damage(inspection: Inspection) -> Iterator[str]:
    if not (inspection.skipped or inspection.repaired):
        return
    yield ""
    yield "DAMAGE"
    for item in inspection.skipped:
        yield from _wrapped(
            f"  {item.num_records:,} {item.kind}, first {printable(item.first)}: "
            f"{printable(item.reason)}",
            4,
        )
    for kind, count in inspection.repaired:
        yield f"  {count:,} {kind}, repaired: no record was lost"


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False) or [
        ""
    ]
