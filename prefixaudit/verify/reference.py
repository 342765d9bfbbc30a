"""The plain reference chain: chains, the hit, the partial tail and the copy-on-write block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prefixaudit.chain.recipes import ChainOptions, chain_of
from prefixaudit.chain.recipes.reference import SharedBlocks
from prefixaudit.engines import load_profile
from prefixaudit.verify._cases import note_unknown_fields
from prefixaudit.verify._verifier import GoldenFile, Tally, Verifier

_FIELDS: Final = ("about", "block_size", "cases", "hit", "partial_tail_a", "copy_on_write")
_NO_ADAPTER: Final = "none"


def _chain(
    token_ids: list[int], block_size: int, revision: str, adapter: str | None
) -> tuple[str, ...]:
    options = ChainOptions(
        model_revision=revision, lora_name=None if adapter == _NO_ADAPTER else adapter
    )
    chain = chain_of(token_ids, load_profile("reference"), options, block_size=block_size)
    return chain.digests


def _verify(file: GoldenFile, tally: Tally) -> None:
    data = file.data
    note_unknown_fields(data, _FIELDS, tally)
    block_size = data["block_size"]
    for number, case in enumerate(data["cases"]):
        tally.case(f"chain {number}")
        found = _chain(case["token_ids"], block_size, case["model_revision"], case["adapter"])
        tally.compare("hash of block", case["chain"], found)
    if "hit" in data:
        tally.case("hit")
        _verify_hit(data["hit"], block_size, tally)
    if "partial_tail_a" in data:
        tally.case("partial tail")
        token_ids = data["cases"][0]["token_ids"]
        num_hashed = len(token_ids) // block_size * block_size
        tally.compare("token", data["partial_tail_a"], token_ids[num_hashed:])
    if "copy_on_write" in data:
        tally.case("copy on write")
        _verify_copy_on_write(data["copy_on_write"], tally)


def _verify_hit(hit: Mapping[str, Any], block_size: int, tally: Tally) -> None:
    """The hit is the run of leading blocks that two chains of one identity share."""
    query = _chain(hit["query"], block_size, "", None)
    cached = set(_chain(hit["cached"], block_size, "", None))
    num_blocks = 0
    while num_blocks < len(query) and query[num_blocks] in cached:
        num_blocks += 1
    tally.equal("cached tokens", hit["cached_tokens"], num_blocks * block_size)


def _verify_copy_on_write(case: Mapping[str, Any], tally: Tally) -> None:
    blocks = SharedBlocks()
    shared = blocks.create(case["shared_block"])
    while blocks.num_references(shared) < case["refcount"]:
        blocks.share(shared)
    private = blocks.write(shared, case["write"]["index"], case["write"]["value"])
    tally.compare("shared token", case["shared_after"], blocks.token_ids(shared))
    tally.compare("private token", case["private_after"], blocks.token_ids(private))
    tally.equal("references", case["refcount_after"], blocks.num_references(shared))


def _recognises(data: Mapping[str, Any]) -> bool:
    cases = data.get("cases")
    return (
        "engine" not in data
        and isinstance(cases, list)
        and all(isinstance(case, Mapping) and "chain" in case for case in cases[:1])
    )


VERIFIER = Verifier(
    title="Reference chain",
    engine="reference",
    recognises=_recognises,
    verify=_verify,
    file_names=("reference-chain.json",),
)
