"""The reference chain against the published vectors, and its copy-on-write blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.chain.recipes import RECIPES, ChainOptions, chain_of
from prefixaudit.chain.recipes.reference import SharedBlocks
from prefixaudit.engines import load_profile
from prefixaudit.errors import UsageError

GOLDENS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/goldens/reference-chain.json").read_bytes()
)
BLOCK_SIZE: int = GOLDENS["block_size"]


def chain(token_ids: list[int], revision: str | None, adapter: str | None) -> tuple[str, ...]:
    options = ChainOptions(model_revision=revision, lora_name=adapter)
    profile = load_profile("reference")
    return chain_of(token_ids, profile, options, block_size=BLOCK_SIZE).digests


@pytest.mark.parametrize("case", GOLDENS["cases"])
def test_digests_equal_the_published_ones(case: dict[str, Any]) -> None:
    found = chain(case["token_ids"], case["model_revision"], case["adapter"])

    assert list(found) == case["chain"]


def test_no_adapter_is_written_none() -> None:
    assert chain([1, 2, 3, 4], "r", None) == chain([1, 2, 3, 4], "r", "none")


def test_hit_is_the_common_front_of_two_chains() -> None:
    hit = GOLDENS["hit"]
    query, cached = (chain(hit[name], "r", None) for name in ("query", "cached"))

    shared = sum(digest in cached for digest in query)

    assert shared * BLOCK_SIZE == hit["cached_tokens"]


def test_partial_tail_has_no_hash() -> None:
    tokens = GOLDENS["hit"]["cached"]
    hashed = chain_of(
        tokens, load_profile("reference"), ChainOptions(model_revision="r"), block_size=BLOCK_SIZE
    )

    assert tokens[hashed.blocks[-1].end :] == GOLDENS["partial_tail_a"]


def test_writing_to_a_shared_block_makes_a_private_copy() -> None:
    case = GOLDENS["copy_on_write"]
    blocks = SharedBlocks()
    shared = blocks.create(case["shared_block"])
    blocks.share(shared)
    assert blocks.num_references(shared) == case["refcount"]

    private = blocks.write(shared, case["write"]["index"], case["write"]["value"])

    assert list(blocks.token_ids(shared)) == case["shared_after"]
    assert list(blocks.token_ids(private)) == case["private_after"]
    assert blocks.num_references(shared) == case["refcount_after"]
    assert blocks.num_references(private) == 1
    assert blocks.num_private_copies == 1


def test_writing_to_a_block_of_ones_own_copies_nothing() -> None:
    blocks = SharedBlocks()
    block = blocks.create([1, 2])

    assert blocks.write(block, 1, 9) == block
    assert blocks.token_ids(block) == (1, 9)
    assert blocks.num_private_copies == 0


def test_a_block_that_nobody_holds_is_gone() -> None:
    blocks = SharedBlocks()
    block = blocks.create([1])

    blocks.release(block)

    assert blocks.num_references(block) == 0
    with pytest.raises(KeyError):
        blocks.write(block, 0, 2)


@pytest.mark.parametrize("place", [-1, 2])
def test_writing_outside_a_block_changes_nothing(place: int) -> None:
    blocks = SharedBlocks()
    block = blocks.share(blocks.create([1, 2]))

    with pytest.raises(IndexError):
        blocks.write(block, place, 9)

    assert blocks.token_ids(block) == (1, 2)
    assert blocks.num_references(block) == 2


def test_what_the_chain_could_not_tell_apart_is_refused() -> None:
    with pytest.raises(UsageError, match="adapter holds a NUL"):
        chain([1, 2, 3, 4], "r", "a\x00b")
    with pytest.raises(UsageError, match="needs a model revision"):
        chain([1, 2, 3, 4], None, None)
    with pytest.raises(UsageError, match="outside 0 to 4294967295"):
        chain([1, 2, 3, -4], "r", None)


def test_recipe_is_found_by_its_name() -> None:
    assert RECIPES["reference"].title.startswith("Reference chain")
