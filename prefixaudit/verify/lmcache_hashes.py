"""LMCache's chunk hashes in both modes, and the values that stand for media placeholders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from prefixaudit.chain.recipes import (
    ChainOptions,
    ProcessLocalHashError,
    chain_of,
    hashing_tier,
    root_of,
)
from prefixaudit.chain.recipes._lmcache import substituted
from prefixaudit.core.engine import EngineProfile
from prefixaudit.core.prompt import MediaSpan
from prefixaudit.engines import load_profile
from prefixaudit.verify._cases import label, note_unknown_fields, number_or_hex, sequence
from prefixaudit.verify._verifier import GoldenFile, Tally, Verifier

_TIERS: Final = {"inprocess": "in-process", "multiprocess": "multiprocess"}
_FIELDS: Final = (
    "mode",
    "algo",
    "chunk_size",
    "save_unfull_chunk",
    "seq",
    "none_hash",
    "chunks",
    "chunk_hashes",
)


def _verify(file: GoldenFile, tally: Tally) -> None:
    host_version = file.data.get("vllm_version")
    host = load_profile("vllm" if host_version is None else f"vllm@{host_version}")
    profile = load_profile(f"lmcache@{file.engine_version}", host=host)
    for number, case in enumerate(file.data["cases"]):
        tally.case(label(number, case))
        note_unknown_fields(case, _FIELDS, tally)
        try:
            _verify_case(file.data, case, profile, tally)
        except ProcessLocalHashError as error:
            tally.leave_out(str(error))
    for number, entry in enumerate(file.data.get("mm_placeholder_values") or ()):
        tally.case(f"placeholder values {number}")
        _, facts = hashing_tier(profile)
        span = MediaSpan(identifier=entry["identifier"], offset=0, num_tokens=len(entry["values"]))
        found = substituted([0] * len(entry["values"]), (span,), facts)
        tally.compare("value", entry["values"], found)


def _verify_case(
    data: Mapping[str, Any], case: Mapping[str, Any], profile: EngineProfile, tally: Tally
) -> None:
    tier = _TIERS[case["mode"]]
    options = ChainOptions(
        algorithm=case["algo"],
        seed=data.get("pythonhashseed"),
        python=data.get("python"),
        includes_partial_block=bool(case.get("save_unfull_chunk")),
    )
    root = root_of(profile, options, tier=tier)
    if root is None:
        options = replace(options, root=number_or_hex(case["none_hash"]))
    elif "none_hash" in case:
        tally.equal("root", number_or_hex(case["none_hash"]), root)
    chain = chain_of(
        sequence(data, case), profile, options, block_size=case["chunk_size"], tier=tier
    )
    if "chunks" in case:
        starts = [0, *(block.end for block in chain.blocks)]
        found = [
            [start, block.end, int(block.published)]
            for start, block in zip(starts, chain.blocks, strict=False)
        ]
        tally.compare("chunk", case["chunks"], found)
    if "chunk_hashes" in case:
        tally.compare("hash of chunk", case["chunk_hashes"], chain.digests)


def _recognises(data: Mapping[str, Any]) -> bool:
    return data.get("engine") == "lmcache" and isinstance(data.get("cases"), list)


VERIFIER = Verifier(
    title="LMCache chunk hashes", engine="lmcache", recognises=_recognises, verify=_verify
)
