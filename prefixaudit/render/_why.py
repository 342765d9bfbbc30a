"""The part of the reports that says where tokens go and what breaks prefixes, as text and values.

Lines come as (indent of what follows, text), to be folded by whoever prints them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from prefixaudit.core.why import PLACES, UnstableCause, Waterfall, WhyFacts
from prefixaudit.printable import printable

SCHEMA_VERSION: Final = 1
_FIRST_CAUSES: Final = 5
_FIRST_REQUESTS: Final = 20
_BAR: Final = "▏▎▍▌▋▊▉█"
_TITLES: Final = {
    "new-text": "never seen before",
    "evicted": "evicted",
    "unstable-prefix": "unstable prefix",
    "separated-by-key": "separated by key",
    "partial-block": "last block and last token",
    "block-alignment": "block alignment",
    "other-replica": "on another server",
    "cache-not-read": "cache not read",
}


def waterfall_lines(why: WhyFacts) -> Iterator[tuple[int, str]]:
    """Yield the section on where the tokens that weren't reused go; its first line is the head."""
    waterfall = why.waterfall
    total = waterfall.num_prompt_tokens
    if not total:
        return
    rest = total - waterfall.place("reused").num_tokens
    has_flops = waterfall.prefill_flops is not None
    heads = f"{'tokens':>15}{'share':>10}" + (f"{'FLOPs':>10}" if has_flops else "")
    yield 0, f"{f'WHERE THE OTHER {100 * rest / total:.2f} % GOES':<32}{heads}"
    for place in sorted(waterfall.places, key=lambda place: -place.num_tokens):
        if place.name == "reused" or (not place.num_tokens and place.name not in _ALWAYS):
            continue
        share = place.num_tokens / total
        cells = f"{place.num_tokens:>15,}{100 * share:>8.2f} %"
        if place.flops is not None and waterfall.prefill_flops:
            cells += f"{100 * place.flops / waterfall.prefill_flops:>8.2f} %"
        about = _about(place.name, why) if place.num_tokens else ""
        line = f"  {_TITLES[place.name]:<30}{cells}  {_bar(share, 10):<10}  {about}"
        yield 62, line.rstrip()


_ALWAYS: Final = ("new-text", "unstable-prefix", "evicted")


def _about(name: str, why: WhyFacts) -> str:
    if name == "unstable-prefix" and why.causes:
        return "1 cause" if len(why.causes) == 1 else f"{len(why.causes):,} causes"
    if name == "separated-by-key" and why.waterfall.separated_by:
        fields = why.waterfall.separated_by[0].fields
        return printable(f"by {', '.join(fields)}") if fields else ""
    if name == "evicted":
        return "a larger pool"
    return ""


def cause_lines(
    why: WhyFacts, *, num_requests: int, most: int = _FIRST_CAUSES
) -> Iterator[tuple[int, str]]:
    """Yield the section on causes; its first line is the head. Nothing without a cause."""
    if not why.causes:
        return
    yield 0, "WHAT BREAKS PREFIXES"
    for cause in why.causes[:most]:
        count = len(cause.positions)
        word = f"of {num_requests:,} requests"
        yield (
            8,
            (
                f"  {cause.intent:<6}{cause.kind}: {count:,} {word} at "
                f"{printable(cause.place)}: {cause.title}; {cause.num_lost_tokens:,} tokens"
            ),
        )
        yield 12, f"        do: {printable(cause.advice)}"
    more = len(why.causes) - most
    if more > 0:
        yield 2, f"  and {more:,} more (prefixaudit why LOG)"


def why_text(why: WhyFacts, *, num_requests: int, width: int = 100, colour: bool = False) -> str:
    """Return all of it as text of at most `width` columns, every cause included."""
    lines: list[str] = []
    sections = (
        waterfall_lines(why),
        cause_lines(why, num_requests=num_requests, most=len(why.causes)),
        _relation_lines(why),
        _note_lines(why),
    )
    for section in sections:
        for number, (indent, line) in enumerate(section):
            if number:
                lines += textwrap.wrap(
                    line, width, subsequent_indent=" " * indent, break_on_hyphens=False
                )
                continue
            if lines:
                lines.append("")
            lines.append(f"\x1b[1m{line}\x1b[0m" if colour else line)
    if not why.causes:
        lines += ["", "no prefix is unstable"]
    return "\n".join(lines) + "\n"


def _relation_lines(why: WhyFacts) -> Iterator[tuple[int, str]]:
    if why.relations:
        yield 0, "HOW REQUESTS RELATE TO THE EARLIER ONE THAT THEY SHARE MOST WITH"
        for relation, count in why.relations.items():
            yield 4, f"  {count:>9,}  {relation}"


def _note_lines(why: WhyFacts) -> Iterator[tuple[int, str]]:
    if why.notes:
        yield 0, "NOTES"
        for note in why.notes:
            yield 4, f"  - {printable(note)}"


def why_values(why: WhyFacts) -> dict[str, Any]:
    """Return what the JSON report holds of it."""
    return {
        "waterfall": _waterfall(why.waterfall),
        "causes": [_cause(cause) for cause in why.causes],
        "relations": dict(why.relations),
        "notes": list(why.notes),
    }


def _waterfall(waterfall: Waterfall) -> dict[str, Any]:
    total = waterfall.num_prompt_tokens
    return {
        "num_prompt_tokens": total,
        "prefill_flops": waterfall.prefill_flops,
        "replicas_are_modelled": waterfall.replicas_are_modelled,
        "places": [
            {
                "name": place.name,
                "about": PLACES[place.name],
                "num_tokens": place.num_tokens,
                "share": place.num_tokens / total if total else None,
                "flops": place.flops,
            }
            for place in waterfall.places
        ],
        "separated_by": [asdict(entry) for entry in waterfall.separated_by],
        "groups": [
            {
                "dimension": group.dimension,
                "value": group.value,
                "num_requests": group.num_requests,
                "num_tokens": {place.name: place.num_tokens for place in group.places},
                "flops": None
                if any(place.flops is None for place in group.places)
                else {place.name: place.flops for place in group.places},
            }
            for group in waterfall.groups
        ],
    }


def _cause(cause: UnstableCause) -> dict[str, Any]:
    what_if = cause.what_if
    return {
        "kind": cause.kind,
        "title": cause.title,
        "place": cause.place,
        "source": cause.source,
        "intent": cause.intent,
        "period_s": cause.period_s,
        "num_requests": len(cause.positions),
        "requests": list(cause.positions),
        "first_request_ids": list(cause.request_ids[:_FIRST_REQUESTS]),
        "first_relative_ids": [name or None for name in cause.relative_ids[:_FIRST_REQUESTS]],
        "first_divergent_token": None if cause.first_token < 0 else cause.first_token,
        "character": cause.character,
        "num_lost_tokens": cause.num_lost_tokens,
        "lost_flops": cause.lost_flops,
        "advice": cause.advice,
        "details": dict(cause.details),
        "what_if": None
        if what_if is None
        else {
            "about": what_if.about,
            "num_prompt_tokens": what_if.num_prompt_tokens,
            "num_cached_tokens": what_if.num_cached_tokens,
            "token_hit_rate": what_if.token_hit_rate,
            "prefill_flops_saved": what_if.prefill_flops_saved,
        },
    }


def _bar(share: float, width: int) -> str:
    eighths = round(share * width * 8)
    if share > 0 and eighths == 0:
        eighths = 1
    full, rest = divmod(eighths, 8)
    return "█" * full + (_BAR[rest - 1] if rest else "")
