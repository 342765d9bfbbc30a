"""Dynamo's router hashes: each block's own, and the sequence hashes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prefixaudit.chain.recipes.dynamo import block_hashes, router_seed, sequence_hashes
from prefixaudit.verify._cases import label, note_unknown_fields, sequence
from prefixaudit.verify._verifier import GoldenFile, Tally, Verifier

_EAGLE_FIELDS: Final = ("is_eagle", "eagle")
_FIELDS: Final = (
    "seq",
    "block_size",
    "lora_name",
    "cache_namespace",
    "mm",
    "block_hashes",
    "sequence_hashes_derived",
    *_EAGLE_FIELDS,
)


def _media(case: Mapping[str, Any]) -> list[list[int]]:
    """Return each block's media hashes; a hash met twice in a block counts twice."""
    return [
        [item["mm_hash"] for item in block["mm_objects"]] if block else []
        for block in case.get("mm") or ()
    ]


def _verify(file: GoldenFile, tally: Tally) -> None:
    for number, case in enumerate(file.data["cases"]):
        tally.case(label(number, case))
        note_unknown_fields(case, _FIELDS, tally)
        found = block_hashes(
            sequence(file.data, case),
            case["block_size"],
            seed=router_seed(case.get("lora_name"), case.get("cache_namespace")),
            media=_media(case),
            is_eagle=any(bool(case.get(name)) for name in _EAGLE_FIELDS),
        )
        tally.compare("hash of block", [int(value) for value in case["block_hashes"]], found)
        if "sequence_hashes_derived" in case:
            expected = [int(value) for value in case["sequence_hashes_derived"]]
            tally.compare("sequence hash of block", expected, sequence_hashes(found))


def _recognises(data: Mapping[str, Any]) -> bool:
    return data.get("engine") == "dynamo" and isinstance(data.get("cases"), list)


VERIFIER = Verifier(
    title="Dynamo router hashes", engine="dynamo", recognises=_recognises, verify=_verify
)
