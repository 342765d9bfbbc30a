"""Why tokens weren't reused: the waterfall, the causes of unstable prefixes, and their repairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from prefixaudit.core.trace import Float64Array, Int64Array

PlaceName: TypeAlias = Literal[
    "reused",
    "new-text",
    "partial-block",
    "block-alignment",
    "separated-by-key",
    "evicted",
    "other-replica",
    "unstable-prefix",
    "cache-not-read",
]
PLACES: Final[Mapping[PlaceName, str]] = {
    "reused": "served from the cache",
    "new-text": "never seen before",
    "partial-block": "seen, but in a block that isn't full, or kept back by the last-token rule",
    "block-alignment": "seen, but hits end at the larger blocks that a hybrid model needs",
    "separated-by-key": "cached, but under another key (salt, tenant, adapter, model …)",
    "evicted": "cached once, and evicted: a larger pool would have hit",
    "other-replica": "cached, but not on the server where the request went",
    "unstable-prefix": "seen before behind another beginning: the same text, rendered differently",
    "cache-not-read": "cached, but the request switches cache reading off",
}
"""Where a prompt token can go; every token is in exactly one place."""

Intent: TypeAlias = Literal["fault", "cost"]

Blame: TypeAlias = Literal["client", "chat template", "server"]
"""Whose doing it is that a prefix broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceTotal:
    """What went to one place; FLOPs None without a model."""

    name: PlaceName
    num_tokens: int
    flops: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallGroup:
    """The tokens of some requests by place; `value` None is unknown, "" is known to be absent."""

    dimension: Literal["tenant", "model", "adapter", "endpoint", "hour"]
    value: str | None
    num_requests: int
    places: tuple[PlaceTotal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparatedBy:
    """Tokens cached under another key, by the identity fields that differ from the donor's."""

    fields: tuple[str, ...]
    num_requests: int
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """Every prompt token in one place.

    by_request        int64 [places, requests], places in the order of PLACES
    flops_by_request  float64 of that shape, None without a model
    replicas_are_modelled  False: one pool is modelled, so nothing can be on another replica

    The place of the last token also holds what no cache saves (the LM head), so that FLOPs add up
    to those of the whole prefill.
    """

    num_prompt_tokens: int
    prefill_flops: float | None
    places: tuple[PlaceTotal, ...]
    groups: tuple[WaterfallGroup, ...]
    separated_by: tuple[SeparatedBy, ...]
    by_request: Int64Array
    flops_by_request: Float64Array | None
    replicas_are_modelled: bool = False

    def place(self, name: PlaceName) -> PlaceTotal:
        """Return what went to one place."""
        return next(place for place in self.places if place.name == name)

    @property
    def unstable_tokens(self) -> Int64Array:
        """Return each request's tokens in `unstable-prefix` (int64 [requests])."""
        row: Int64Array = self.by_request[list(PLACES).index("unstable-prefix")]
        return row

    @property
    def unstable_flops(self) -> Float64Array | None:
        """Return what computing them costs (float64 [requests]); None without a model."""
        if self.flops_by_request is None:
            return None
        row: Float64Array = self.flops_by_request[list(PLACES).index("unstable-prefix")]
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A replay with one cause repaired: the new figures of the whole log, and each request's hits.

    `hits` is int64 [requests]; `num_prompt_tokens` can differ from before.
    """

    about: str
    num_prompt_tokens: int
    num_cached_tokens: int
    token_hit_rate: float | None
    prefill_flops_saved: float | None
    hits: Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class UnstableCause:
    """Requests whose prefix changed in the same way at the same place.

    kind       short name (`clock`, `tool-order` …); `title` says it in words
    place      the field, or the part of the template, where the prompts first differ
    source     who writes what changes: the client, the chat template, or the server
    intent     "cost" where the model or engine is meant to do so, "fault" where somebody slipped
    period_s   of a clock: how often what it prints changes
    positions  positions in the trace of the requests, in log order
    first_token  the first differing token of the first of them, and the character of the text
    character  in the field, None where it isn't in a field
    num_lost_tokens  tokens that these requests share with a relative behind the difference
    lost_flops  FLOPs to compute them; None without a model
    advice     one sentence: what to change, with the figure that it brings
    """

    kind: str
    title: str
    place: str
    source: Blame
    intent: Intent
    period_s: float | None
    positions: tuple[int, ...]
    request_ids: tuple[str, ...]
    relative_ids: tuple[str, ...]
    first_token: int
    character: int | None
    num_lost_tokens: int
    lost_flops: float | None
    advice: str
    details: Mapping[str, int | str] = field(default_factory=dict)
    what_if: WhatIf | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyFacts:
    """The waterfall and the causes, the dearest first.

    `relations` counts requests by their relation to the earlier one that they share most with.
    """

    waterfall: Waterfall
    causes: tuple[UnstableCause, ...] = ()
    relations: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnstableRuns:
    """Stretches of prompts that were seen before behind another beginning, as columns.

    request     int64  position in the trace, ascending
    start, end  int64  tokens of its prompt
    """

    request: Int64Array
    start: Int64Array
    end: Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What pairing found, as columns of length [requests].

    prefix_tokens  int64    longest common prefix with an earlier prompt and answer; -1 unknown
    runs           stretches behind it that were seen before
    """

    prefix_tokens: Int64Array
    runs: UnstableRuns


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRequest:
    """One side of a comparison; `source` is `path:line`."""

    request_id: str
    source: str
    num_prompt_tokens: int
    num_cached_answer_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An earlier and a later request, side by side where they part.

    `relative_is_given`  False: the earlier one was found, as the one that shares most
    `differing_key_fields`  fields of the engine's key that differ: names, never values
    `unknown_key_fields`  those that aren't known on one side
    `num_shared_tokens`  equal tokens from the front
    `equal_again`  (start, end) in the later prompt: seen in the earlier one behind the difference
    `kind`, `title`, `advice`  None where the later prompt just goes on, or is new
    `num_hit_tokens`  served from the pool: of the two alone, or of the whole log before
    `text`  what stands around the difference (before, earlier, later); None unless asked for
    """

    earlier: ComparedRequest
    later: ComparedRequest
    relative_is_given: bool
    block_size: int
    differing_key_fields: tuple[str, ...]
    unknown_key_fields: tuple[str, ...]
    num_shared_tokens: int
    equal_again: tuple[tuple[int, int], ...]
    relation: str
    kind: str | None
    title: str | None
    place: str | None
    character: int | None
    source: str | None
    intent: Intent | None
    advice: str | None
    num_hit_tokens: int
    text: tuple[str, str, str] | None = None

    @property
    def num_equal_again_tokens(self) -> int:
        return sum(end - start for start, end in self.equal_again)
