"""The head of the report: what was read, and under what it was replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from prefixaudit.core.report import ReadFile, Report
from prefixaudit.printable import printable
from prefixaudit.render._style import Style
from prefixaudit.render._units import blocks, duration, gib, size
from prefixaudit.wording import plural

FIRST_SKIPPED = 3


def header_lines(report: Report, style: Style, show_skipped: bool) -> Iterator[str]:
    """Yield what was read and the setting."""
    log = report.log
    names = _files_in_short(log.files)
    yield from style.wrapped(f"prefixaudit {report.version} · {names}")
    parts = [plural(log.num_requests, "request")]
    if log.num_tenants is not None:
        parts[0] += f" from {plural(log.num_tenants, 'tenant')}"
    if log.first_arrival_s is not None and log.last_arrival_s is not None:
        parts[0] += f" over {duration(log.last_arrival_s - log.first_arrival_s)}"
    parts.append(_skipped_in_short(report, show_skipped))
    yield from style.wrapped(" · ".join(parts))
    yield from style.wrapped(" · ".join(_setting(report)))
    if report.deployment_path is not None:
        yield from style.wrapped(f"deployment {printable(report.deployment_path)}")


def _skipped_in_short(report: Report, show_skipped: bool) -> str:
    log = report.log
    if not log.num_skipped:
        return "no record skipped"
    kinds = Counter(item.kind for item in log.skipped)
    named = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(4))
    more = "" if show_skipped or log.num_skipped <= FIRST_SKIPPED else "; --show-skipped"
    return f"{plural(log.num_skipped, 'record')} skipped ({named}{more})"


def _setting(report: Report) -> Iterator[str]:
    pool = report.pool
    model = report.model.name
    engine = pool.engine if pool.engine is not None else "no engine given"
    size = "no limit" if pool.capacity_blocks is None else blocks(pool.capacity_blocks)
    room = f" ({gib(pool.capacity_bytes)})" if pool.capacity_bytes is not None else ""
    if pool.capacity_range_blocks is not None:
        low, high = pool.capacity_range_blocks
        room += f", of an estimate of {low:,} to {high:,}"
    elif pool.capacity_origin == "engine-log":
        room += " by the engine's log"
    origin = {
        "deployment": "",
        "engine": " (the engine's default)",
        "engine-log": " (by the engine's log)",
        "model": " (as the engine raises them for the model)",
        "trace": " (the trace's)",
        "assumed": " (assumed; --block-size)",
    }[pool.block_size_origin]
    warm = pool.warm_start
    if warm is not None:
        room += f", {warm.num_tokens:,} tokens in it at the start"
    yield ", ".join(
        part
        for part in (
            engine,
            None if model is None else printable(model),
            f"{pool.block_size}-token blocks{origin}",
            f"pool: {size}{room}",
        )
        if part is not None
    )
    agreement = report.prompt_agreement
    if agreement is not None:
        yield (
            f"prompts replayed: {agreement.num_equal:,} of {agreement.num_compared:,} "
            "match the server's counts"
        )


def _files_in_short(files: Sequence[ReadFile]) -> str:
    """Name one or two files, or count more of them by the folder that holds them all."""
    if len(files) <= 2:
        return (
            ", ".join(
                f"{printable(file.path)} ({file.format}{size(file.num_bytes)})" for file in files
            )
            or "no files"
        )
    formats = ", ".join(sorted({file.format for file in files}))
    sizes = [file.num_bytes for file in files]
    known = [size for size in sizes if size is not None]
    total = sum(known) if len(known) == len(sizes) else None
    folders = {str(PurePath(file.path).parent) for file in files}
    place = f"in {folders.pop()}" if len(folders) == 1 else f"in {len(folders):,} folders"
    return f"{len(files):,} files {printable(place)} ({formats}{size(total)})"
