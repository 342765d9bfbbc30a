"""llm-d's index keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prefixaudit.chain.recipes.llm_d import index_keys, index_root
from prefixaudit.verify._cases import label, note_unknown_fields, sequence
from prefixaudit.verify._verifier import GoldenFile, Tally, Verifier

_FIELDS: Final = ("model_or_lora_name", "hash_seed", "seq", "block_size", "keys", "extra")


def _verify(file: GoldenFile, tally: Tally) -> None:
    for number, case in enumerate(file.data["cases"]):
        tally.case(label(number, case))
        note_unknown_fields(case, _FIELDS, tally)
        found = index_keys(
            sequence(file.data, case),
            case["block_size"],
            root=index_root(case["hash_seed"], case["model_or_lora_name"]),
            extra=case.get("extra") or (),
        )
        tally.compare("key of block", [int(key) for key in case["keys"]], found)


def _recognises(data: Mapping[str, Any]) -> bool:
    return data.get("engine") == "llm-d-kv-cache" and isinstance(data.get("cases"), list)


VERIFIER = Verifier(
    title="llm-d index keys", engine="llm-d", recognises=_recognises, verify=_verify
)
