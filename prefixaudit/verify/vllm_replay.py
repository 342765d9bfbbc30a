"""Replays recorded operations on vLLM's KVCacheManager: hit, ok, free, keys stored and evicted.

`settings`: `groups` [{type: full, swa, chunked_local or mamba; block_size; sliding_window or
attention_chunk_size}], `num_blocks` (with the null block), `hash_block_size`,
`scheduler_block_size` (the lcm of the groups where absent), `use_eagle`, `retention_interval`
(absent or null: dense).

`ops[i]` gives `expect[i]`: `add` (rid, prompt, salt, lora: a number, first: how many of the missing
tokens to compute) gives `hit` tokens and `ok`; `prefill` (rid, n) computes up to n further prompt
tokens; `decode` (rid, n, seg, start) computes what isn't computed and then appends a token, n
times, and gives `done`; `free` (rid); `reset` gives `ok` and `cleared`. All give `free` blocks,
`st` (keys registered) and `rm` (keys evicted, in order: the last 8 bytes in hex, with `:group`
where there are several groups). What is nothing may be absent. Keys are sha256_cbor digests with
PYTHONHASHSEED=0.

A request that an operation found no room for is freed and dropped; later operations on it have no
result (null), and none is computed for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prefixaudit.pool.vllm.manager import PoolManager
from prefixaudit.pool.vllm.request import PoolRequest
from prefixaudit.verify._verifier import GoldenFile, Tally, Verifier
from prefixaudit.verify._vllm_vectors import KeyChain, published, rules_of, tokens_of

_OPERATIONS: Final = frozenset({"add", "prefill", "decode", "free", "reset"})


class _Live:
    """A running request with its tokens; the last sampled one has no KV yet."""

    __slots__ = ("chain", "request", "tokens")

    def __init__(self, number: int, chain: KeyChain, tokens: list[int]) -> None:
        self.chain = chain
        self.tokens = tokens
        chain.grow(tokens)
        self.request = PoolRequest(
            number=number, keys=chain.keys, num_prompt_tokens=len(tokens), num_tokens=len(tokens)
        )

    def append(self, tokens: list[int]) -> None:
        self.tokens += tokens
        self.chain.grow(self.tokens)
        self.request.num_tokens = len(self.tokens)


class _Replay:
    """One recorded scenario, operation by operation."""

    def __init__(self, settings: Mapping[str, Any], engine_version: str) -> None:
        self.rules = rules_of(settings, engine_version)
        self.manager = PoolManager(self.rules, settings["num_blocks"])
        self._version = engine_version
        self._live: dict[str, _Live] = {}
        self._num_added = 0

    def run(self, operation: Mapping[str, Any]) -> dict[str, Any] | None:
        """Do one operation and return its result as it would be recorded."""
        kind, name = operation["op"], operation.get("rid", "")
        if kind not in _OPERATIONS:
            raise ValueError(f"operation '{kind}'; known: {', '.join(sorted(_OPERATIONS))}")
        stored_before = self.manager.pool.num_keys_registered
        if kind == "add":
            result: dict[str, Any] = self._add(operation)
        elif kind == "reset":
            result = {"ok": 1, "cleared": 1} if self.manager.reset() else {"ok": 0}
        elif name not in self._live:
            return None
        elif kind == "prefill":
            result = {"ok": int(self._prefill(name, operation["n"]))}
        elif kind == "decode":
            result = self._decode(operation)
        else:
            self._drop(name)
            result = {}
        self.manager.finish_copies()
        result["free"] = self.manager.num_free_blocks
        stored = self.manager.pool.num_keys_registered - stored_before
        if stored:
            result["st"] = stored
        removed = self._removed()
        return {**result, "rm": removed} if removed else result

    def _add(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        chain = KeyChain(
            self.rules.hash_block_size,
            self._version,
            lora=operation.get("lora"),
            salt=operation.get("salt"),
        )
        live = _Live(self._num_added, chain, tokens_of(operation["prompt"]))
        self._num_added += 1
        request = live.request
        hit = self.manager.look_up(request)
        missing = request.num_tokens - hit.num_tokens
        num_tokens = min(missing, operation.get("first", missing))
        has_room = self.manager.allocate(request, num_tokens, hit=hit)
        if has_room:
            request.num_computed_tokens = hit.num_tokens + num_tokens
            self._live[operation["rid"]] = live
        return {"hit": hit.num_tokens, "ok": int(has_room)}

    def _prefill(self, name: str, num_tokens: int) -> bool:
        request = self._live[name].request
        rest = request.num_prompt_tokens - request.num_computed_tokens
        return self._compute(name, min(num_tokens, rest))

    def _decode(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        name = operation["rid"]
        live = self._live[name]
        for done in range(operation["n"]):
            request = live.request
            if not self._compute(name, request.num_tokens - request.num_computed_tokens):
                return {"ok": 0, "done": done}
            live.append(tokens_of([[operation["seg"], operation["start"] + done, 1]]))
        return {"ok": 1, "done": operation["n"]}

    def _compute(self, name: str, num_tokens: int) -> bool:
        """Compute further tokens of a request; without room it is freed and dropped."""
        if num_tokens <= 0:
            return True
        request = self._live[name].request
        if not self.manager.allocate(request, num_tokens):
            self._drop(name)
            return False
        request.num_computed_tokens += num_tokens
        return True

    def _drop(self, name: str) -> None:
        self.manager.free(self._live.pop(name).request)

    def _removed(self) -> list[str]:
        several = len(self.rules.groups) > 1
        return [
            published(key) + (f":{group}" if several else "")
            for group, key in self.manager.take_evicted()
        ]


def _complete(result: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a result with what a record leaves out where it is nothing."""
    return None if result is None else {"st": 0, "rm": [], "cleared": 0, **result}


def _recognises(data: Mapping[str, Any]) -> bool:
    settings = data.get("settings")
    return "ops" in data and isinstance(settings, Mapping) and "groups" in settings


def _verify(file: GoldenFile, tally: Tally) -> None:
    settings, operations, expected = (file.data[key] for key in ("settings", "ops", "expect"))
    tally.case(file.data["id"])
    replay = _Replay(settings, file.engine_version)
    results = [_complete(replay.run(operation)) for operation in operations]
    tally.compare("operation", [_complete(result) for result in expected], results)


VERIFIER = Verifier(
    title="vLLM block pool, operation by operation",
    engine="vllm",
    recognises=_recognises,
    verify=_verify,
)
