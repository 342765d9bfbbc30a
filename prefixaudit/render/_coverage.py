"""What the report can't say: UNKNOWN identity fields and SKIPPED records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prefixaudit.core.report import Report, UnknownField
from prefixaudit.printable import printable
from prefixaudit.render._header import FIRST_SKIPPED
from prefixaudit.render._style import Style
from prefixaudit.wording import plural


def unknown_lines(report: Report, style: Style) -> Iterator[str]:
    """Yield the section UNKNOWN."""
    fields = report.unknown_fields
    if not fields:
        return
    total = report.log.num_requests
    yield ""
    everywhere = [field for field in fields if field.num_requests == total]
    if everywhere:
        names = ", ".join(field.field for field in everywhere)
        lines = style.wrapped(
            f"UNKNOWN  for every request: {names}. This audit can't say whether requests that "
            "differ in them share blocks."
        )
        yield style.bold("UNKNOWN") + lines[0].removeprefix("UNKNOWN")
        yield from lines[1:]
    else:
        yield style.bold("UNKNOWN")
    for field in fields:
        if field.num_requests < total:
            yield from style.wrapped(f"  {_unknown_sentence(field, total)}", indent=4)


def skipped_lines(report: Report, style: Style, show_skipped: bool) -> Iterator[str]:
    """Yield the section SKIPPED."""
    log = report.log
    if not log.skipped:
        return
    yield ""
    yield style.bold("SKIPPED") + f"  {plural(log.num_skipped, 'record')}"
    if show_skipped:
        for item in log.skipped:
            yield from style.wrapped(
                f"  {printable(str(item.source))}: {item.kind}: {printable(item.reason)}",
                indent=4,
            )
        return
    kinds = Counter(item.kind for item in log.skipped)
    for kind, count in kinds.most_common():
        yield f"  {count:,} {kind}"
        first = [item for item in log.skipped if item.kind == kind][:FIRST_SKIPPED]
        for item in first:
            yield from style.wrapped(
                f"    {printable(str(item.source))}: {printable(item.reason)}", indent=6
            )
        if count > len(first):
            yield f"    and {count - len(first):,} more (--show-skipped)"


def _unknown_sentence(field: UnknownField, total: int) -> str:
    effect = (
        "share blocks that differ in it" if field.kind == "content" else "see each other's reuse"
    )
    return (
        f"{field.field} ({field.about}) unknown for {field.num_requests:,} of {total:,} requests: "
        f"this audit can't say whether they {effect}"
    )
