"""vLLM's block hashes: the root, the extra keys and every block's hash of each case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from prefixaudit.chain.recipes import (
    ChainOptions,
    ProcessLocalHashError,
    chain_of,
    hashing_tier,
    root_of,
)
from prefixaudit.chain.recipes.vllm import extra_keys
from prefixaudit.core.engine import EngineProfile
from prefixaudit.core.prompt import MediaSpan
from prefixaudit.engines import load_profile
from prefixaudit.verify._cases import (
    label,
    note_unknown_fields,
    number_or_hex,
    plain,
    sequence,
)
from prefixaudit.verify._verifier import GoldenFile, Tally, Verifier

_FIELDS: Final = (
    "algo",
    "seq",
    "block_size",
    "none_hash",
    "hashes",
    "extra_keys",
    "lora",
    "cache_salt",
    "mm_features",
    "mm_identifiers_same_object",
    "prompt_embeds",
    "lookahead",
)


def _options(data: Mapping[str, Any], case: Mapping[str, Any], num_tokens: int) -> ChainOptions:
    lora = case.get("lora") or {}
    return ChainOptions(
        algorithm=case["algo"],
        seed=data.get("pythonhashseed"),
        python=data.get("python"),
        lora_name=lora.get("name"),
        lora_id=lora.get("id"),
        lora_path=lora.get("path"),
        cache_salt=case.get("cache_salt"),
        media=tuple(
            MediaSpan(
                identifier=feature["identifier"],
                offset=feature["offset"],
                num_tokens=feature["length"],
            )
            for feature in case.get("mm_features") or ()
        ),
        is_media_identifier_shared=bool(case.get("mm_identifiers_same_object")),
        prompt_embeds=_prompt_embeds(case, num_tokens),
        lookahead_tokens=case.get("lookahead") or 0,
    )


def _prompt_embeds(case: Mapping[str, Any], num_tokens: int) -> list[bytes] | None:
    """Return the rows of the files' formula: element (t, k) is (t * dim + k) / 1024, float32."""
    settings = case.get("prompt_embeds")
    if not settings:
        return None
    width = settings["dim"]
    rows = np.arange(num_tokens * width, dtype=np.float64).reshape(num_tokens, width) / 1024
    return [row.tobytes() for row in rows.astype("<f4")]


def _verify(file: GoldenFile, tally: Tally) -> None:
    profile = load_profile(f"vllm@{file.engine_version}")
    for number, case in enumerate(file.data["cases"]):
        tally.case(label(number, case))
        note_unknown_fields(case, _FIELDS, tally)
        try:
            _verify_case(file.data, case, profile, tally)
        except ProcessLocalHashError as error:
            tally.leave_out(str(error))


def _verify_case(
    data: Mapping[str, Any], case: Mapping[str, Any], profile: EngineProfile, tally: Tally
) -> None:
    _, facts = hashing_tier(profile)
    token_ids = sequence(data, case)
    options = _options(data, case, len(token_ids))
    root = root_of(profile, options)
    if root is None:
        # Random in each process: the file says what it was.
        options = replace(options, root=number_or_hex(case["none_hash"]))
    elif "none_hash" in case:
        tally.equal("root", number_or_hex(case["none_hash"]), root)
    if case.get("extra_keys") is not None:
        found = extra_keys(token_ids, case["block_size"], facts, options)
        tally.compare("extra keys of block", case["extra_keys"], [plain(key) for key in found])
    chain = chain_of(token_ids, profile, options, block_size=case["block_size"])
    tally.compare("hash of block", [number_or_hex(h) for h in case["hashes"]], chain.digests)


def _recognises(data: Mapping[str, Any]) -> bool:
    cases = data.get("cases")
    return (
        data.get("engine") == "vllm"
        and isinstance(cases, list)
        and all(isinstance(case, Mapping) and "hashes" in case for case in cases[:1])
    )


VERIFIER = Verifier(
    title="vLLM block hashes", engine="vllm", recognises=_recognises, verify=_verify
)
