"""Hashes of SGLang, LMCache, Dynamo and llm-d, against bytes put together by hand."""

from __future__ import annotations

import hashlib
import struct

import blake3
import pytest
import xxhash

from prefixaudit.chain.recipes import ChainOptions, chain_of, root_of
from prefixaudit.chain.recipes._lmcache import cache_engine_key, placeholder_values, salt_problem
from prefixaudit.chain.recipes.dynamo import block_hashes
from prefixaudit.chain.recipes.llm_d import fnv1a_64
from prefixaudit.core.prompt import MediaSpan
from prefixaudit.engines import load_profile
from prefixaudit.errors import UsageError

SGLANG = load_profile("sglang@0.5.23")
PLAIN = ChainOptions()


def test_sglang_pages_chain_without_a_parent_for_the_first() -> None:
    first = hashlib.sha256(struct.pack("<2I", 1, 2)).digest()
    second = hashlib.sha256(first + struct.pack("<2I", 3, 4)).digest()

    chain = chain_of([1, 2, 3, 4, 5], SGLANG, PLAIN, block_size=2)

    assert chain.digests == (first.hex(), second.hex())
    assert chain.blocks[0].published == str(struct.unpack(">q", first[:8])[0])


def test_sglang_bigram_pages_hold_pairs_of_neighbours() -> None:
    first = hashlib.sha256(struct.pack("<4I", 1, 2, 2, 3)).hexdigest()

    chain = chain_of([1, 2, 3, 4], SGLANG, ChainOptions(is_bigram=True), block_size=2)

    assert chain.digests == (first,)


def test_sglang_pages_with_wide_ids_are_tagged_and_others_are_not() -> None:
    wide = 2**40
    first = hashlib.sha256(b"\xff" + struct.pack("<2Q", 1, wide)).digest()
    second = hashlib.sha256(first + struct.pack("<2I", 3, 4)).hexdigest()

    chain = chain_of([1, wide, 3, 4], SGLANG, PLAIN, block_size=2)

    assert chain.digests == (first.hex(), second)
    with pytest.raises(UsageError, match="above 32 bits"):
        chain_of([1, wide], load_profile("sglang@0.5.22"), PLAIN, block_size=2)


@pytest.mark.parametrize(
    ("version", "is_seeded"), [("0.5.18", False), ("0.5.19", False), ("0.5.20", True)]
)
def test_sglang_storage_chain_is_seeded_by_the_namespace_from_0_5_20(
    version: str, is_seeded: bool
) -> None:
    options = ChainOptions(cache_salt="tenant")

    root = root_of(load_profile(f"sglang@{version}"), options)

    seed = hashlib.sha256(
        b"sglang-cache-namespace-v1" + b"\0" + b"\1" + struct.pack("<Q", 6) + b"tenant"
    )
    assert root == (seed.hexdigest() if is_seeded else "none")


def test_sglang_events_leave_the_extra_key_out_and_hold_the_salt() -> None:
    parent = hashlib.sha256(b"sglang-cache-salt-v1\0s").digest()
    salted = hashlib.sha256(parent + struct.pack("<I", 1)).digest()
    plain = hashlib.sha256(struct.pack("<I", 1)).digest()

    with_salt = chain_of([1], SGLANG, ChainOptions(cache_salt="s", extra_key="e"))
    with_extra_key = chain_of([1], SGLANG, ChainOptions(extra_key="e"))

    assert with_salt.blocks[0].published == str(struct.unpack(">q", salted[:8])[0])
    assert with_extra_key.blocks[0].published == str(struct.unpack(">q", plain[:8])[0])


def test_old_sglang_events_name_a_page_by_pythons_hash_of_its_tokens() -> None:
    chain = chain_of([5, 6, 5, 6], load_profile("sglang@0.5.5"), PLAIN, block_size=2)

    assert [block.published for block in chain.blocks] == [str(hash((5, 6)))] * 2


def test_sglang_events_name_pages_by_their_digest_from_0_5_6() -> None:
    first = hashlib.sha256(struct.pack("<I", 5)).digest()

    chain = chain_of([5], load_profile("sglang@0.5.6"), PLAIN)

    assert chain.blocks[0].published == str(struct.unpack(">q", first[:8])[0])


def test_lmcache_multiprocess_is_blake3_over_big_endian_ids() -> None:
    root = blake3.blake3(bytes(12)).digest()
    first = blake3.blake3(root + struct.pack(">2I", 1, 2)).hexdigest()

    chain = chain_of([1, 2, 3], load_profile("lmcache"), PLAIN, block_size=2, tier="multiprocess")

    assert chain.root == root.hex()
    assert chain.digests == (first,)


def test_lmcache_in_process_folds_digests_to_their_first_8_bytes() -> None:
    # CBOR by hand: the folded root is an 8-byte integer, the extra keys an empty array.
    root = hashlib.sha256(b"\x61" + b"0").digest()[:8]
    encoded = b"\x83\x1b" + root + b"\x82\x01\x02" + b"\x80"
    first = int.from_bytes(hashlib.sha256(encoded).digest()[:8], "big")

    options = ChainOptions(algorithm="sha256_cbor", seed="0")
    chain = chain_of([1, 2], load_profile("lmcache"), options, block_size=2)

    assert chain.blocks[0].published == str(first)


def test_lmcache_in_process_builtin_is_pythons_hash() -> None:
    options = ChainOptions(algorithm="builtin", root="17", includes_partial_block=True)
    first = hash((17, (1, 2), ()))
    second = hash((first, (3,), ()))

    chain = chain_of([1, 2, 3], load_profile("lmcache"), options, block_size=2)

    assert [block.published for block in chain.blocks] == [str(first), str(second)]
    assert [block.end for block in chain.blocks] == [2, 3]


def test_lmcache_takes_the_rule_for_its_root_from_the_vllm_it_runs_in() -> None:
    options = ChainOptions(algorithm="sha256_cbor")
    old, new = load_profile("vllm@0.28.0"), load_profile("vllm@0.29.0")

    assert root_of(load_profile("lmcache@0.5.6", host=old), options) is None
    assert root_of(load_profile("lmcache@0.5.6", host=new), options) is not None
    before_seeds = load_profile("lmcache@0.5.6", host=load_profile("vllm@0.9.2"))
    assert root_of(before_seeds, ChainOptions(algorithm="sha256")) == "0"


@pytest.mark.parametrize(
    ("version", "value"), [("0.5.4", 0xBEEF), ("0.5.5", placeholder_values("deadbeef", 1)[0])]
)
def test_lmcache_puts_values_in_place_of_placeholders(version: str, value: int) -> None:
    media = (MediaSpan(identifier="deadbeef", offset=1, num_tokens=1),)
    profile = load_profile(f"lmcache@{version}")

    def digests(tokens: list[int], media: tuple[MediaSpan, ...]) -> tuple[str, ...]:
        options = ChainOptions(media=media)
        return chain_of(tokens, profile, options, block_size=2, tier="multiprocess").digests

    assert digests([1, 99], media) == digests([1, value], ())


def test_lmcache_key_text_and_salts_that_the_server_refuses() -> None:
    key = cache_engine_key(
        255, model="m", world_size=2, worker_id=1, kv_dtype="bfloat16", tags={"t": "v"}
    )

    assert key == "m@2@1@ff@bfloat16@t%v"
    assert salt_problem("tenant") is None
    assert salt_problem("a@b") is not None
    assert salt_problem("x" * 129) is not None


def test_dynamo_adds_adapter_and_namespace_to_the_seed() -> None:
    seed = 1337 + xxhash.xxh3_64_intdigest(b"sql", 0) + xxhash.xxh3_64_intdigest(b"t", 1)
    block = xxhash.xxh3_64_intdigest(struct.pack("<2I", 1, 2), seed % 2**64)

    chain = chain_of(
        [1, 2],
        load_profile("dynamo"),
        ChainOptions(lora_name="sql", cache_salt="t"),
        block_size=2,
    )

    assert chain.blocks[0].published == str(block)
    assert chain.digests == (f"{block:016x}",)  # the first sequence hash is the block's own


def test_dynamo_sequence_hash_chains_with_the_plain_seed() -> None:
    chain = chain_of([1, 2], load_profile("dynamo"), PLAIN, block_size=1)
    blocks = [int(block.published) for block in chain.blocks]

    expected = xxhash.xxh3_64_intdigest(struct.pack("<2Q", *blocks), 1337)

    assert chain.digests[1] == f"{expected:016x}"


def test_dynamo_eagle_windows_take_one_token_more() -> None:
    first = xxhash.xxh3_64_intdigest(struct.pack("<3I", 1, 2, 3), 1337)
    second = xxhash.xxh3_64_intdigest(struct.pack("<3I", 3, 4, 5), 1337)

    found = block_hashes([1, 2, 3, 4, 5, 6], 2, seed=1337, is_eagle=True)

    assert found == [first, second]


def test_dynamo_appends_sorted_media_hashes() -> None:
    expected = xxhash.xxh3_64_intdigest(struct.pack("<IQQ", 1, 2, 9), 1337)

    assert block_hashes([1], 1, seed=1337, media=[[9, 2]]) == [expected]


def test_fnv1a_of_the_published_test_vectors() -> None:
    # Test vectors of the FNV reference: "", "a", "foobar".
    assert [fnv1a_64(text) for text in (b"", b"a", b"foobar")] == [
        0xCBF29CE484222325,
        0xAF63DC4C8601EC8C,
        0x85944171F73967E8,
    ]


def test_llm_d_starts_from_the_adapters_name_where_there_is_one() -> None:
    profile = load_profile("llm-d")

    adapter = root_of(profile, ChainOptions(model="m", lora_name="sql"))

    assert adapter == root_of(profile, ChainOptions(model="sql"))
    with pytest.raises(UsageError, match="name of the model or adapter"):
        root_of(profile, PLAIN)
    media = (MediaSpan(identifier="i", offset=0, num_tokens=1),)
    with pytest.raises(UsageError, match="not established"):
        chain_of([1], profile, ChainOptions(model="m", media=media), block_size=1)
