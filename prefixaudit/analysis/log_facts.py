"""What a reader of a report has to know of the log itself: damage, cut prompts, repeats, rounding.

Facts of the records, by cause and place, so that a program finds them; text reports say most of it
where records are skipped, or as notes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from prefixaudit.core.log_fact import LogFact, LogFactKind
from prefixaudit.logs import Repair

if TYPE_CHECKING:
    from prefixaudit.analysis.gathered import Gathered
    from prefixaudit.core.report import TraceIds
    from prefixaudit.core.request import Skipped
    from prefixaudit.core.trace import BlockTrace, Int64Array

_FIRST: Final = 100
_Severity: TypeAlias = Literal["informational", "low", "medium"]

# Skipped records whose cause is the log; those that a template or a tokenizer refuses are not.
_OF_SKIPPED: Final[Mapping[str, LogFactKind]] = {
    "cut-tail": "log-incomplete-tail",
    "cut-prompt": "log-truncated-prompt",
    "cut-content": "log-truncated-prompt",
    "cut-body": "log-truncated-prompt",
    "truncated-prompt": "log-truncated-prompt",
    "trimmed-content": "log-truncated-prompt",
    "no-prompt-logged": "log-no-prompt",
    "no-prompt": "log-no-prompt",
    "no-system-prompt": "log-no-prompt",
    "redacted": "log-no-prompt",
    **dict.fromkeys(
        (
            "nul-bytes", "cut-line", "invalid-utf8", "invalid-json", "lone-surrogate", "too-deep",
            "line-too-long", "damaged-archive", "unreadable-file",
        ),
        "log-damaged",
    ),
}  # fmt: skip
_SEVERITY: Final[Mapping[LogFactKind, _Severity]] = {
    "log-truncated-prompt": "medium",
    "log-damaged": "low",
    "log-no-prompt": "low",
    "log-duplicates": "low",
    "log-read-from-both-ends": "low",
    "metric-double-count": "low",
}
_ABOUT: Final[Mapping[LogFactKind, str]] = {
    "log-damaged": "records can't be read: data is lost",
    "log-incomplete-tail": "the last line has no end yet: it may still be being written",
    "log-truncated-prompt": "the logger cut the prompt: what is left of it isn't replayed",
    "log-no-prompt": "the log doesn't hold the prompt: nothing is replayed",
}
_SERVER_LOGS: Final = frozenset({"vllm", "sglang"})
_GATEWAY_LOGS: Final = frozenset(
    {"openai", "openai-responses", "anthropic", "litellm", "langfuse", "helicone", "otel-genai",
     "envoy-ai-gateway"}
)  # fmt: skip


def log_facts_of(
    gathered: Gathered,
    trace: BlockTrace | None = None,
    *,
    trace_ids: TraceIds | None = None,
    num_cached_tokens: Int64Array | None = None,
) -> tuple[LogFact, ...]:
    """Return the facts, the gravest first; the last three of what was replayed."""
    facts = [
        *_skipped(gathered.skipped, gathered),
        *_repaired(gathered),
        *_encodings(gathered),
        *_marked(gathered),
        *_both_ends(gathered),
        *_double_counts(gathered),
    ]
    if trace_ids is not None and trace is not None:
        facts.append(_resolution(trace_ids, trace))
    if trace is not None and num_cached_tokens is not None:
        facts += _rounded(gathered, trace, num_cached_tokens)
    grade = ("medium", "low", "informational").index
    return tuple(sorted(facts, key=lambda fact: grade(fact.severity)))


def _fact(
    kind: LogFactKind,
    about: str,
    num: int,
    *,
    sources: Iterable[str] = (),
    requests: Iterable[int] = (),
    num_bytes: int | None = None,
) -> LogFact:
    return LogFact(
        kind=kind,
        severity=_SEVERITY.get(kind, "informational"),
        about=about,
        num=num,
        sources=tuple(sources),
        requests=tuple(requests),
        num_bytes=num_bytes,
    )


def _skipped(skipped: Sequence[Skipped], gathered: Gathered) -> Iterator[LogFact]:
    rows: dict[str, list[int]] = defaultdict(list)
    for position, place in enumerate(gathered.rows.position):
        if place < 0:
            rows[skipped[-1 - place].kind].append(position)
    kinds: dict[LogFactKind, list[str]] = defaultdict(list)
    for kind in rows:
        if kind in _OF_SKIPPED:
            kinds[_OF_SKIPPED[kind]].append(kind)
    for fact, members in kinds.items():
        places = sorted(position for kind in members for position in rows[kind])
        items = [skipped[-1 - gathered.rows.position[position]] for position in places[:_FIRST]]
        reasons = Counter(item.reason for item in items).most_common(1)[0][0]
        yield _fact(
            fact,
            f"{_ABOUT[fact]} ({', '.join(sorted(members))}); the most common: {reasons}",
            len(places),
            sources=(str(item.source) for item in items),
            requests=places[:_FIRST],
        )


def _repaired(gathered: Gathered) -> Iterator[LogFact]:
    about = {
        "nul-bytes": "NUL bytes in front of records were passed over",
        "bom": "byte order marks within a file were passed over",
        "glued-records": "records that stand on one line were taken apart",
    }
    for kind, count in gathered.num_repaired.items():
        found = [repair for repair in gathered.repairs if repair.kind == kind]
        yield _fact(
            "log-repaired",
            f"{kind}: {about.get(kind, 'damage')}; no record was lost",
            count,
            sources=(str(repair.source) for repair in found[:_FIRST]),
            requests=_positions(gathered, found),
            num_bytes=sum(repair.num_bytes for repair in found) if count == len(found) else None,
        )


def _encodings(gathered: Gathered) -> Iterator[LogFact]:
    for encoding, count in Counter(file.encoding for file in gathered.files).items():
        if encoding != "utf-8":
            yield _fact(
                "log-encoding",
                f"{encoding}, by its byte order mark or its zeros: a mark is no data",
                count,
                sources=[file.path for file in gathered.files if file.encoding == encoding][
                    :_FIRST
                ],
            )


def _marked(gathered: Gathered) -> Iterator[LogFact]:
    known: dict[str, tuple[LogFactKind, str]] = {
        "large-line": (
            "log-large-line",
            "lines of a megabyte or more; media in them are known by a digest, never shown, and "
            "never tokenized as text",
        ),
        "same-call": (
            "log-duplicates",
            "lines of one message and one request are parts of one call, counted once, with the "
            "last line's figures",
        ),
    }
    for kind, count in gathered.num_marked.items():
        found = [mark for mark in gathered.marks if mark.kind == kind]
        yield _fact(
            known[kind][0],
            known[kind][1],
            count,
            sources=(str(mark.source) for mark in found[:_FIRST]),
            requests=_positions(gathered, found),
            num_bytes=sum(mark.num_bytes for mark in found) or None,
        )


def _positions(gathered: Gathered, found: Sequence[Repair]) -> list[int]:
    """Return the positions in the log of what stands on some lines."""
    rows = gathered.rows
    wanted = {
        (rows.paths[mark.source.path], mark.source.line)
        for mark in found
        if mark.source.path in rows.paths
    }
    if not wanted:
        return []
    lines = np.array(rows.line, dtype=np.int64)
    near = np.flatnonzero(np.isin(lines, np.array([line for _, line in wanted], dtype=np.int64)))
    return [row for row in near.tolist() if (rows.path[row], int(lines[row])) in wanted][:_FIRST]


def _both_ends(gathered: Gathered) -> Iterator[LogFact]:
    numbers = np.bincount(
        np.array(gathered.rows.path, dtype=np.int64), minlength=len(gathered.rows.paths)
    )
    formats = {file.path: file.format for file in gathered.files}
    with_rows = {path for path, number in gathered.rows.paths.items() if numbers[number]}
    servers = sorted(path for path in with_rows if formats.get(path) in _SERVER_LOGS)
    gateways = sorted(path for path in with_rows if formats.get(path) in _GATEWAY_LOGS)
    if servers and gateways:
        yield _fact(
            "log-read-from-both-ends",
            "a server's own log and a gateway's are read together: they aren't joined, so a "
            "request that stands in both is counted twice, and its second copy hits the first",
            len(servers) + len(gateways),
            sources=[*servers, *gateways][:_FIRST],
        )


def _double_counts(gathered: Gathered) -> Iterator[LogFact]:
    usage = gathered.usage
    if usage is None:
        return
    outside = usage.counted_outside
    inside = (usage.cached_tokens > 0) & ~outside
    if outside.any() and inside.any():
        yield _fact(
            "metric-double-count",
            f"{int(outside.sum()):,} records count cached tokens beside the prompt's, and "
            f"{int(inside.sum()):,} among them; they were added to the former only: added to all, "
            "they would count twice",
            int(outside.sum()),
            requests=usage.index[outside][:_FIRST].tolist(),
        )


def _resolution(ids: TraceIds, trace: BlockTrace) -> LogFact:
    finer = ""
    if ids.finer_block_size is not None:
        finer = f"; in blocks of {ids.finer_block_size} tokens a range is known only"
    return _fact(
        "trace-resolution",
        f"ids of {trace.block_size} tokens can't say where inside a block two prompts part{finer}",
        trace.num_requests,
    )


def _rounded(
    gathered: Gathered, trace: BlockTrace, num_cached_tokens: Int64Array
) -> Iterator[LogFact]:
    size = trace.block_size
    lengths = trace.num_prompt_tokens
    whole = (lengths > 0) & (lengths % size == 0) & (num_cached_tokens == lengths - size)
    if whole.any() and (seen := whole & (_known_before(trace) >= lengths)).any():
        yield _fact(
            "block-rounding",
            f"prompts of whole blocks of {size} tokens that all were cached: the last block is "
            "computed all the same, or there would be no logits; this is no fault",
            int(seen.sum()),
            requests=trace.index[seen][:_FIRST].tolist(),
        )


def _known_before(trace: BlockTrace) -> Int64Array:
    """Return how many tokens of each prompt lie in blocks that an earlier request has."""
    from prefixaudit.pool import hits_at

    everyone = np.zeros(trace.num_requests, dtype=np.int32)
    hits: Int64Array = hits_at(trace, everyone, [None], min_recomputed_tokens=0)[0]
    return hits * trace.block_size
