"""What an analysis can and can't say of a log, in words, from what the log holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prefixaudit.core.inspection import FieldCoverage, InspectedTimes


def can_and_cannot(
    *,
    num_requests: int,
    kinds: Mapping[str, int],
    not_replayable: Mapping[str, int],
    fields: Mapping[str, FieldCoverage],
    times: InspectedTimes,
    headers: Mapping[str, int],
    num_media: int,
    num_readings: int,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return sentences on what can be said, and on what can't and why; names no value."""
    can = (
        *_prompts(kinds),
        *_figures(fields, num_requests),
        *_owners(fields),
        *_engine(num_readings),
    )
    cannot = (
        *_missing_prompts(kinds, not_replayable, num_requests),
        *_missing_identity(fields, headers, num_requests),
        *_missing_figures(fields, num_requests),
        *_about_times(times, num_requests),
        *_about_media(num_media),
    )
    return can, cannot


def _prompts(kinds: Mapping[str, int]) -> Iterator[str]:
    texts = kinds.get("chat messages", 0) + kinds.get("text", 0)
    if texts:
        yield (
            f"reuse, exactly: {_requests(texts)} hold their prompt as text, to be rendered and "
            "tokenized with the server's model folder (--model DIR)"
        )
    if number := kinds.get("token ids", 0):
        yield f"reuse, exactly: {_requests(number)} hold token ids; no model folder is needed"
    if number := kinds.get("block ids", 0):
        yield (
            f"reuse in the trace's own blocks: {_requests(number)} hold block ids; for smaller "
            "blocks a range"
        )


def _figures(fields: Mapping[str, FieldCoverage], num_requests: int) -> Iterator[str]:
    if number := fields["num_cached_tokens"].num_present:
        yield f"whether the server's cached tokens agree with the replay, for {_requests(number)}"
    if number := fields["num_prompt_tokens"].num_present:
        yield f"whether the replay is right: the server counted {_requests(number)}' prompts"
    if fields["answer"].num_present == num_requests and num_requests:
        yield "follow-up turns that reuse answers: every request has its answer"


def _owners(fields: Mapping[str, FieldCoverage]) -> Iterator[str]:
    for name, noun in (("tenant", "tenants"), ("user", "users")):
        if fields[name].num_values > 1:
            more = "or more " if fields[name].is_bounded else ""
            yield (
                f"what {fields[name].num_values:,} {more}{noun} share, and what keeping them apart "
                "would cost"
            )


def _engine(num_readings: int) -> Iterator[str]:
    if num_readings:
        yield f"what the engine said of itself: {num_readings:,} readings of rates, use or size"


def _missing_prompts(
    kinds: Mapping[str, int], not_replayable: Mapping[str, int], num_requests: int
) -> Iterator[str]:
    if not num_requests:
        yield "anything about requests: there is none in it"
    if number := kinds.get("length only", 0):
        yield (
            f"reuse of {_requests(number)}: only their lengths were logged; no cache can be "
            "simulated"
        )
    for kind, number in not_replayable.items():
        yield f"reuse of {_requests(number)} whose prompt isn't in the log ({kind})"


def _missing_identity(
    fields: Mapping[str, FieldCoverage], headers: Mapping[str, int], num_requests: int
) -> Iterator[str]:
    if not num_requests:
        return
    tenant = fields["tenant"]
    if tenant.num_unknown:
        named = sorted(name for name, count in headers.items() if 1 < count <= num_requests)
        likely = [n for n in named if any(w in n for w in ("tenant", "team", "org", "account"))]
        hint = f" (a header may tell: {', '.join((likely or named)[:3])})" if named else ""
        yield (
            f"who is served whose blocks, for {_requests(tenant.num_unknown)} without a tenant: "
            f"name its field or header in prefixaudit.toml{hint}"
        )
    unknown = [
        name
        for name in ("lora_name", "lora_revision", "model_revision", "cache_salt")
        if fields[name].num_unknown == num_requests
    ]
    if unknown:
        yield f"whether requests that differ in {', '.join(unknown)} share blocks: not recorded"


def _missing_figures(fields: Mapping[str, FieldCoverage], num_requests: int) -> Iterator[str]:
    if not num_requests:
        return
    cached = fields["num_cached_tokens"]
    if cached.num_absent:
        yield (
            f"what null cached tokens of {_requests(cached.num_absent)} mean (zero, or not "
            "counted), unless the engine's version is given"
        )
    if cached.num_unknown:
        yield f"what the server really reused for {_requests(cached.num_unknown)}: not reported"
    answer = fields["answer"]
    if number := answer.num_unknown:
        yield (
            f"what follow-up turns reuse of {_requests(number)}' answers: they aren't in the log"
        )


def _about_times(times: InspectedTimes, num_requests: int) -> Iterator[str]:
    if times.num_known < num_requests:
        yield (
            f"in which order {_requests(num_requests - times.num_known)} without a time came: the "
            "log's order is taken"
        )
    if times.num_far:
        yield (
            f"how {_requests(times.num_far)} fit in, more than 31 days from the rest: another "
            "clock, zone or unit?"
        )


def _about_media(num_media: int) -> Iterator[str]:
    if num_media:
        yield (
            f"the length of {num_media:,} images or other media, unless the model folder's family "
            "has a known rule"
        )


def _requests(count: int) -> str:
    return f"{count:,} request" if count == 1 else f"{count:,} requests"
