"""SGLang's page hashes and their form in events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prefixaudit.chain.recipes import ChainOptions, chain_of
from prefixaudit.chain.recipes.sglang import signed_64
from prefixaudit.engines import load_profile
from prefixaudit.verify._cases import label, note_unknown_fields, sequence
from prefixaudit.verify._verifier import GoldenFile, Tally, Verifier

_FIELDS: Final = (
    "seq",
    "page_size",
    "page_hashes",
    "extra_key",
    "cache_salt",
    "namespace_seed",
    "event_int64",
    "bigram",
)


def _verify(file: GoldenFile, tally: Tally) -> None:
    profile = load_profile(f"sglang@{file.engine_version}")
    for number, case in enumerate(file.data["cases"]):
        tally.case(label(number, case))
        note_unknown_fields(case, _FIELDS, tally)
        options = ChainOptions(
            extra_key=case.get("extra_key"),
            cache_salt=case.get("cache_salt"),
            is_bigram=bool(case.get("bigram")),
        )
        chain = chain_of(sequence(file.data, case), profile, options, block_size=case["page_size"])
        if "namespace_seed" in case:
            tally.equal("namespace seed", case["namespace_seed"] or "none", chain.root)
        tally.compare("hash of page", case["page_hashes"], chain.digests)
        if "event_int64" in case:
            found = [signed_64(bytes.fromhex(digest)) for digest in chain.digests]
            tally.compare("64-bit form of page", case["event_int64"], found)


def _recognises(data: Mapping[str, Any]) -> bool:
    cases = data.get("cases")
    return (
        data.get("engine") == "sglang"
        and isinstance(cases, list)
        and all(isinstance(case, Mapping) and "page_hashes" in case for case in cases[:1])
    )


VERIFIER = Verifier(
    title="SGLang page hashes", engine="sglang", recognises=_recognises, verify=_verify
)
