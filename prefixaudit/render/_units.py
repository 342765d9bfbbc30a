"""Numbers as text: counts, shares, bytes, FLOPs, seconds, bars."""

from __future__ import annotations

from prefixaudit.wording import plural

_GIB = 2**30
_BAR = "▏▎▍▌▋▊▉█"


def blocks(count: int) -> str:
    return plural(count, "block")


def gib(num_bytes: float | None) -> str:
    if num_bytes is None:
        return "-"
    gib = num_bytes / _GIB
    if gib >= 0.1:
        return f"{gib:,.1f} GiB"
    return f"{num_bytes / 2**20:,.1f} MiB"


def size(num_bytes: int | None) -> str:
    if num_bytes is None:
        return ""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= limit:
            return f", {num_bytes / limit:.1f} {unit}"
    return f", {num_bytes} B"


def flop_unit(flops: float) -> tuple[float, str]:
    for limit, unit in ((1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP")):
        if flops >= limit:
            return limit, unit
    return 1e6, "MFLOP"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def bar(share: float, width: int) -> str:
    eighths = round(share * width * 8)
    if share > 0 and eighths == 0:
        eighths = 1
    full, rest = divmod(eighths, 8)
    return "█" * full + (_BAR[rest - 1] if rest else "")
