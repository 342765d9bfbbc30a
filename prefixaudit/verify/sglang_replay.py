"""Replays recorded SGLang operations and compares each result: hit, ok, free, evictable, evicted.

A request that an earlier operation dropped has no result (null), and none is computed for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from prefixaudit.core.trace import Int64Array
from prefixaudit.pool.eviction import POLICIES
from prefixaudit.pool.sglang.rules import SglangRules, namespace_key, rules_of
from prefixaudit.pool.sglang.scheduler import Running, SglangPool
from prefixaudit.verify._verifier import GoldenFile, Tally, Verifier

_ALL_TOKENS: Final = 1 << 62
_OPERATIONS: Final = frozenset({"add", "prefill", "decode", "free", "reset"})


class _Live:
    """A running request and the tokens it has so far; the last sampled one has no KV yet."""

    __slots__ = ("running", "tokens")

    def __init__(self, running: Running, tokens: list[int]) -> None:
        self.running = running
        self.tokens = tokens


class _Replay:
    """One recorded scenario, operation by operation."""

    def __init__(self, settings: Mapping[str, Any], engine_version: str) -> None:
        self.rules = _recorded_rules(engine_version)
        self.pool = SglangPool(
            capacity_tokens=settings["pool_tokens"],
            block_size=settings["page_size"],
            policy=POLICIES[settings["policy"]],
            rules=self.rules,
        )
        self._live: dict[str, _Live] = {}
        # Equal pages have equal numbers; the tree needs no more of them.
        self._blocks: dict[tuple[int, ...], int] = {}
        self._namespaces: dict[tuple[str, ...], int] = {}

    def run(self, operation: Mapping[str, Any]) -> dict[str, int] | None:
        """Do one operation and return its result as it would be recorded."""
        kind, name = operation["op"], operation.get("rid", "")
        if kind not in _OPERATIONS:
            raise ValueError(f"operation '{kind}'; known: {', '.join(sorted(_OPERATIONS))}")
        evicted_before = self.pool.num_evicted_tokens
        if kind == "add":
            result = self._add(operation)
        elif kind == "reset":
            result = {"ok": int(self.pool.reset())}
        elif name not in self._live:
            return None
        elif kind == "prefill":
            result = {"ok": int(self._prefill(name, operation["n"]))}
        elif kind == "decode":
            result = self._decode(operation)
        else:
            live = self._live.pop(name)
            self.pool.free(live.running, self._block_ids(live.tokens))
            result = {}
        result["free"] = self.pool.num_free_tokens
        result["evictable"] = self.pool.num_evictable_tokens
        evicted = self.pool.num_evicted_tokens - evicted_before
        return {**result, "ev": evicted} if evicted else result

    def _add(self, operation: Mapping[str, Any]) -> dict[str, int]:
        tokens = _tokens(operation["prompt"])
        adapter = operation.get("lora")
        key = namespace_key(
            self.rules,
            cache_salt=operation.get("salt"),
            extra_key=f"lora-{adapter}" if adapter is not None else None,
        )
        hit, running = self.pool.add(
            self._block_ids(tokens),
            len(tokens),
            donor=0,
            namespace=self._namespaces.setdefault(key, len(self._namespaces)),
            priority=operation.get("priority", 0),
            first_tokens=operation.get("first"),
        )
        if running is not None:
            self._live[operation["rid"]] = _Live(running, tokens)
        return {"hit": hit, "ok": int(running is not None)}

    def _prefill(self, name: str, num_tokens: int) -> bool:
        has_room = self.pool.prefill(self._live[name].running, num_tokens)
        if not has_room:
            del self._live[name]
        return has_room

    def _decode(self, operation: Mapping[str, Any]) -> dict[str, int]:
        name = operation["rid"]
        live = self._live[name]
        running = live.running
        for done in range(operation["n"]):
            has_room = True
            if running.num_computed_tokens < running.num_prompt_tokens:
                has_room = self._prefill(name, _ALL_TOKENS)
            elif running.num_computed_tokens < len(live.tokens):
                has_room = self.pool.extend(running, 1) == 1
                if not has_room:
                    self.pool.abort(running)
                    del self._live[name]
            if not has_room:
                return {"ok": 0, "done": done}
            live.tokens += _tokens([[operation["seg"], operation["start"] + done, 1]])
        return {"ok": 1, "done": operation["n"]}

    def _block_ids(self, tokens: Sequence[int]) -> Int64Array:
        size = self.pool.block_size
        pages = [tuple(tokens[end - size : end]) for end in range(size, len(tokens) + 1, size)]
        ids = [self._blocks.setdefault(page, len(self._blocks)) for page in pages]
        return np.asarray(ids, dtype=np.int64)


def _recorded_rules(engine_version: str) -> SglangRules:
    """Return a release's rules as far as they were recorded: its tree, driven step by step.

    The recorder inserts without saying what the request inserted before, so that the trees which
    count requests count every insertion; nor does it insert the prompt once more at the end.
    """
    rules = rules_of(engine_version)
    counts = "every-insertion" if rules.hit_counts == "requests" else rules.hit_counts
    return replace(rules, hit_counts=counts, raises_prompt=False)


def _tokens(pieces: Sequence[Sequence[int]]) -> list[int]:
    """Return the tokens of pieces [segment, start, length] by the vectors' formula."""
    return [
        (segment * 1_000_003 + place * 7_919 + 17) % 151_000
        for segment, start, length in pieces
        for place in range(start, start + length)
    ]


def _recognises(data: Mapping[str, Any]) -> bool:
    settings = data.get("settings")
    return "ops" in data and isinstance(settings, Mapping) and "pool_tokens" in settings


def _verify(file: GoldenFile, tally: Tally) -> None:
    settings, operations, expected = (file.data[key] for key in ("settings", "ops", "expect"))
    tally.case(file.data["id"])
    if settings["policy"] not in POLICIES.names:
        tally.leave_out(f"eviction policy '{settings['policy']}' isn't modelled")
        return
    replay = _Replay(settings, file.engine_version)
    recorded_amount = settings.get("evict_amount", replay.rules.evicts)
    tally.equal("evict_amount of the release", recorded_amount, replay.rules.evicts)
    results = [replay.run(operation) for operation in operations]
    tally.compare("operation", expected, results)


VERIFIER = Verifier(
    title="SGLang radix cache, operation by operation",
    engine="sglang",
    recognises=_recognises,
    verify=_verify,
)
