"""TIME and SAMPLES: what hits save in seconds and money, what n > 1 costs; text and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from prefixaudit.core.report import Report
from prefixaudit.printable import printable
from prefixaudit.render._style import Style
from prefixaudit.render._units import gib
from prefixaudit.wording import plural

if TYPE_CHECKING:
    from prefixaudit.core.times import ForkFacts, TimeFacts, TimePercentiles


def time_lines(report: Report, style: Style) -> Iterator[str]:
    """Yield the section TIME; nothing without a GPU or a model."""
    facts = report.time
    if facts is None:
        return
    times = facts.times
    count = "" if facts.tensor_parallel == 1 else f"{facts.tensor_parallel} x "
    pool = "endless pool" if facts.is_endless_pool else "this pool"
    yield ""
    yield (
        f"{style.bold('TIME')}  {count}{printable(facts.gpu)}, {pool}; each a range: see what is "
        "assumed"
    )
    saved, divisor, unit = _shared(times.gpu_s_saved, times.gpu_s_prefill)
    of = _range(times.gpu_s_prefill, divisor)
    yield _row("prefill, GPUs saturated", f"{saved} of {of} GPU {unit} saved", "full batches")
    if times.usd_saved is not None and facts.usd_per_gpu_hour is not None:
        yield _row(
            "worth",
            f"{_usd(times.usd_saved)} USD",
            f"at {facts.usd_per_gpu_hour:,.2f} USD a GPU hour",
        )
    yield from _first_tokens(times.ttft_cold, times.ttft_hit)
    if times.num_hits:
        yield from style.wrapped(
            f"  {'hits that save no time':<30}{times.num_hits_too_short:,} of {times.num_hits:,} "
            f"are too short for it; {times.num_hits_doubtful:,} more save time at best only "
            "(requests alone)",
            indent=32,
        )
    yield "  assumed"
    for text in times.assumptions:
        yield from style.wrapped(f"    - {printable(text)}", indent=6)


def _first_tokens(cold: TimePercentiles | None, hit: TimePercentiles | None) -> Iterator[str]:
    if cold is None or hit is None:
        return
    largest = max(*cold.p99_s, *hit.p99_s)
    divisor, unit = (1.0, "s") if largest >= 1 else (1e-3, "ms")
    heads = "".join(f"{f'{name}, {unit}':>15}" for name in ("p50", "p90", "p99"))
    yield f"  {'time to first token':<30}{heads}    alone, no queue"
    for name, spans in (("without hits", cold), ("with hits", hit)):
        cells = "".join(
            f"{_range(span, divisor):>15}" for span in (spans.p50_s, spans.p90_s, spans.p99_s)
        )
        yield f"    {name:<28}{cells}"


def _row(name: str, value: str, about: str) -> str:
    return f"  {name:<30}{value}   {about}"


def _shared(first: tuple[float, float], second: tuple[float, float]) -> tuple[str, float, str]:
    """Return a range as text, and the unit and its divisor that fit the larger of two ranges."""
    largest = max(*first, *second)
    for divisor, unit in ((3600.0, "hours"), (1.0, "s")):
        if largest >= divisor:
            return _range(first, divisor), divisor, unit
    return _range(first, 1e-3), 1e-3, "ms"


def _range(span: tuple[float, float], divisor: float) -> str:
    lo, hi = (_number(value / divisor) for value in span)
    return lo if lo == hi else f"{lo}-{hi}"


def _number(value: float) -> str:
    size = abs(value)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2
    return f"{value:,.{decimals}f}"


def _usd(span: tuple[float, float]) -> str:
    """Return an amount with the decimals that tell it from nothing."""
    decimals = 2 if span[1] >= 0.1 or not span[1] else 4
    lo, hi = (f"{value:,.{decimals}f}" for value in span)
    return lo if lo == hi else f"{lo}-{hi}"


def fork_lines(report: Report, style: Style) -> Iterator[str]:
    """Yield the section SAMPLES; nothing where each request asks for one answer."""
    facts = report.forks
    if facts is None:
        return
    yield ""
    yield (
        f"{style.bold('SAMPLES')}  {_asking(facts.num_requests)} for "
        f"{facts.num_samples:,} answers (n > 1): each sample runs as a request of its own"
    )
    yield (
        f"  {'samples':>9}{'requests':>12}{'shared blocks':>16}{'held instead of':>18}"
        f"{'private copies':>17}{'tokens again':>15}"
    )
    for row in facts.rows:
        unshared = row.num_samples * row.num_shared_blocks
        yield (
            f"  {row.num_samples:>9,}{row.num_requests:>12,}{row.num_shared_blocks:>16,}"
            f"{unshared:>18,}{row.num_private_copies:>17,}{row.num_recomputed_tokens:>15,}"
        )
    size = ""
    if facts.block_bytes is not None:
        size = f" ({gib(facts.num_private_copies * facts.block_bytes)})"
    yield from style.wrapped(
        f"  a shared block is held once by all samples of a request; the second and later samples "
        f"hold {plural(facts.num_private_copies, 'private copy').replace('copys', 'copies')}{size} "
        f"of what they can't be served and compute {facts.num_recomputed_tokens:,} prompt tokens "
        "again. Prompts only; the answers come on top",
        indent=4,
    )


def _asking(num_requests: int) -> str:
    return "1 request asks" if num_requests == 1 else f"{num_requests:,} requests ask"


def time_values(facts: TimeFacts | None) -> dict[str, Any] | None:
    """Return the times as plain values."""
    if facts is None:
        return None
    values = asdict(facts)
    return {**{name: values[name] for name in values if name != "times"}, **values["times"]}


def fork_values(facts: ForkFacts | None) -> dict[str, Any] | None:
    """Return the cost of samples as plain values."""
    return None if facts is None else asdict(facts)
