"""What is in a log, before any prompt is replayed: the result of `inspect`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedFile:
    """One file: how it was read and what became of its records.

    claims   how surely formats claim it (0..1), the surest first; empty where one was named
    problem  why nothing of it could be read, None where it was
    """

    path: str
    format: str | None
    claims: tuple[tuple[str, float], ...]
    encoding: str | None
    compression: str | None
    num_bytes: int | None
    num_records: int
    num_requests: int
    num_skipped: int
    num_set_aside: int
    num_other_lines: int
    num_readings: int
    notes: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldCoverage:
    """How many requests have a field, are known to have none, or don't say.

    `num_values` are the different values, counted up to a bound (`is_bounded`). `constant` is the
    only value where all requests share one and it is no secret; owners and salts are never shown.
    """

    field: str
    about: str
    num_present: int
    num_absent: int
    num_unknown: int
    num_values: int
    is_bounded: bool
    constant: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Records skipped for one reason; `sources` are the first 100 places (`path:line`)."""

    kind: str
    num_records: int
    first: str
    reason: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """A line that reads all the same: repaired, very large, one of several of a call, or cut."""

    kind: str
    source: str
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedTimes:
    """Arrival times, seconds since 1970 or since a trace's start; None where no request has one.

    num_backwards  requests that come before the one read before them
    num_far        requests more than 31 days from the median: another clock, zone or unit
    """

    num_known: int
    first_s: float | None
    last_s: float | None
    num_backwards: int
    num_far: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What is in a log.

    prompt_kinds    requests by what their prompt is: chat, text, token ids, block ids, length only
    not_replayable  requests whose prompt isn't in the log, by kind
    headers         names of request headers with the number of their values: one may name tenants
    marked          lines to know of: repairs, a megabyte or more, several of one call, no (whole)
                    prompt; the first 100 of each kind and file
    num_large       requests of a million characters or more; the largest in characters
    can, cannot     what the analysis can say of this log, and what it can't and why
    """

    version: str
    files: tuple[InspectedFile, ...]
    ignored_files: tuple[str, ...]
    num_requests: int
    prompt_kinds: tuple[tuple[str, int], ...]
    not_replayable: tuple[tuple[str, int], ...]
    fields: tuple[FieldCoverage, ...]
    headers: tuple[tuple[str, int], ...]
    times: InspectedTimes
    skipped: tuple[Damage, ...]
    repaired: tuple[tuple[str, int], ...]
    marked: tuple[Marked, ...]
    num_repeated_ids: int
    num_media: int
    num_large: int
    largest_characters: int
    can: tuple[str, ...]
    cannot: tuple[str, ...]
