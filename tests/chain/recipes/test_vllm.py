"""vLLM's block hashes, against bytes put together by hand."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.chain.recipes import ChainOptions, HashedChain, chain_of, root_of
from prefixaudit.chain.recipes.vllm import extra_keys
from prefixaudit.core.prompt import MediaSpan
from prefixaudit.engines import load_profile
from prefixaudit.errors import UsageError

CASES = Path(__file__).parents[2] / "data" / "cases"
TOKENS = list(range(100, 110))


def _chain(version: str, options: ChainOptions, tokens: list[int] = TOKENS) -> HashedChain:
    return chain_of(tokens, load_profile(f"vllm@{version}"), options, block_size=4)


def _sha256_of_pickle(value: object) -> bytes:
    return hashlib.sha256(pickle.dumps(value, protocol=5)).digest()


def test_sha256_hashes_the_pickled_tuple_and_chains_the_digest() -> None:
    root = _sha256_of_pickle("0")
    first = _sha256_of_pickle((root, (100, 101, 102, 103), None))
    second = _sha256_of_pickle((first, (104, 105, 106, 107), None))

    chain = _chain("0.33.0", ChainOptions(seed="0"))

    assert chain.root == root.hex()
    assert chain.digests == (first.hex(), second.hex())


def test_events_carry_the_last_8_bytes_as_an_unsigned_integer() -> None:
    block = _chain("0.33.0", ChainOptions(seed="0")).blocks[0]

    assert int(block.published) == int(block.digest[-16:], 16)


def test_partial_block_has_no_hash() -> None:
    assert [block.end for block in _chain("0.33.0", ChainOptions()).blocks] == [4, 8]


def test_sha256_cbor_hashes_canonical_cbor() -> None:
    # CBOR by hand: array of 3, bytes of 32, array of 4 one-byte integers (0x18 n), null.
    root = hashlib.sha256(b"\x61" + b"7").digest()
    tokens = b"\x84" + b"".join(bytes([0x18, token]) for token in TOKENS[:4])
    first = hashlib.sha256(b"\x83\x58\x20" + root + tokens + b"\xf6").hexdigest()

    chain = _chain("0.28.0", ChainOptions(algorithm="sha256_cbor", seed="7"))

    assert chain.root == root.hex()
    assert chain.digests[0] == first


def test_xxhash_cbor_hashes_with_xxh3_128_big_endian() -> None:
    root = xxhash.xxh3_128(b"\x61" + b"7").digest()
    tokens = b"\x84" + b"".join(bytes([0x18, token]) for token in TOKENS[:4])
    first = xxhash.xxh3_128(b"\x83\x50" + root + tokens + b"\xf6").hexdigest()

    assert _chain("0.13.0", ChainOptions(algorithm="xxhash_cbor", seed="7")).digests[0] == first


def test_64_bit_hashes_of_0_10_0_are_the_low_bits() -> None:
    root = int.from_bytes(hashlib.sha256(b"\x61" + b"7").digest()[-8:], "big")
    tokens = b"\x84" + b"".join(bytes([0x18, token]) for token in TOKENS[:4])
    encoded = b"\x83\x1b" + root.to_bytes(8, "big") + tokens + b"\xf6"
    first = int.from_bytes(hashlib.sha256(encoded).digest()[-8:], "big")

    chain = _chain("0.10.0", ChainOptions(algorithm="sha256_cbor_64bit", seed="7"))

    assert root >= 2**32  # so that CBOR writes it in 8 bytes
    assert chain.digests[0] == str(first)


def test_before_0_10_2_the_parent_is_an_integer() -> None:
    root = int.from_bytes(_sha256_of_pickle("0"), "big")
    first = int.from_bytes(_sha256_of_pickle((root, (100, 101, 102, 103), None)), "big")

    assert _chain("0.9.2", ChainOptions(algorithm="sha256", seed="0")).digests[0] == str(first)


def test_builtin_hashes_integers_with_python() -> None:
    root = int.from_bytes(_sha256_of_pickle("3"), "big")
    first = hash((root, (100, 101, 102, 103), (2,)))

    options = ChainOptions(algorithm="builtin", seed="3", lora_id=2, lora_name="sql")

    assert _chain("0.8.5", options).digests[0] == str(first)


def test_builtin_without_extra_keys_needs_a_python_whose_none_has_a_fixed_hash() -> None:
    # From Python 3.12 hash(None) is 0xFCA86420, which is also the hash of that integer.
    root = int.from_bytes(_sha256_of_pickle("3"), "big")
    options = ChainOptions(algorithm="builtin", seed="3", python="3.12.4")

    first = hash((root, (100, 101, 102, 103), 0xFCA86420))

    assert _chain("0.8.5", options).digests[0] == str(first)
    with pytest.raises(UsageError, match=r"differs by process before Python 3\.12"):
        _chain("0.8.5", ChainOptions(algorithm="builtin", seed="3", python="3.11.7"))


@pytest.mark.parametrize(
    ("version", "value"),
    [
        ("0.7.0", (0xFCA86420, 100, 101, 102, 103)),
        ("0.7.1", (0xFCA86420, (100, 101, 102, 103), 0xFCA86420)),
    ],
)
def test_extra_keys_are_chained_from_0_7_1(version: str, value: tuple[Any, ...]) -> None:
    # As above: the integer has the hash that None has from Python 3.12.
    assert _chain(version, ChainOptions(python="3.12")).digests[0] == str(hash(value))


def test_pythons_hash_of_text_is_the_one_of_a_process_with_the_engines_seed() -> None:
    # hash("0") under PYTHONHASHSEED=0, as recorded in LMCache's vectors (CPython 3.11, 64 bit).
    options = ChainOptions(algorithm="builtin", seed="0")

    assert root_of(load_profile("vllm@0.10.1"), options) == "5313149338359954478"


@pytest.mark.parametrize(
    ("version", "algorithm", "root"),
    [
        ("0.28.0", "sha256", None),
        ("0.29.0", "sha256", _sha256_of_pickle("vllm-none-hash").hex()),
        ("0.29.0", "xxhash", None),
        ("0.8.2", "builtin", None),
        ("0.8.3", "sha256", str(int.from_bytes(_sha256_of_pickle(None), "big"))),
        ("0.8.5", "sha256", None),
    ],
)
def test_root_without_a_seed(version: str, algorithm: str, root: str | None) -> None:
    profile = load_profile(f"vllm@{version}")

    assert root_of(profile, ChainOptions(algorithm=algorithm)) == root


def test_0_8_4_draws_a_random_root_when_a_seed_is_set() -> None:
    assert root_of(load_profile("vllm@0.8.4"), ChainOptions(seed="0")) is None


def test_a_random_root_has_to_be_given() -> None:
    with pytest.raises(UsageError, match="random in each process"):
        _chain("0.28.0", ChainOptions())

    given_root = _chain("0.28.0", ChainOptions(root="00" * 32))

    assert given_root.digests[0] == _sha256_of_pickle((bytes(32), (100, 101, 102, 103), None)).hex()


def _keys(version: str, options: ChainOptions, num_tokens: int = 8) -> list[Any]:
    facts = load_profile(f"vllm@{version}").tiers[0].hash
    assert facts is not None
    return extra_keys(range(num_tokens), 4, facts, options)


@pytest.mark.parametrize(
    ("version", "first", "second"),
    [
        ("0.8.5", (7,), (7,)),
        ("0.9.0", (7, "s"), (7,)),
        ("0.11.0", (7, "s"), (7,)),
        ("0.11.1", ("sql", "s"), ("sql",)),
        ("0.30.0", ("sql", "s"), ("sql",)),
        ("0.31.0", (("lora", "sql", "/a"), ("cache_salt", "s")), (("lora", "sql", "/a"),)),
    ],
)
def test_adapter_is_in_all_blocks_and_salt_in_the_first(
    version: str, first: tuple[Any, ...], second: tuple[Any, ...]
) -> None:
    options = ChainOptions(lora_name="sql", lora_id=7, lora_path="/a", cache_salt="s")

    assert _keys(version, options) == [first, second]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.18.0", [("i",), ("i",), None]),
        ("0.19.0", [(("i", 2),), (("i", -2),), None]),
        ("0.31.0", [(("mm", "i", 2),), (("mm", "i", -2),), None]),
    ],
)
def test_media_are_in_the_blocks_that_overlap_them(version: str, expected: list[Any]) -> None:
    # Tokens 2 to 7: the third block starts where the placeholder ends.
    options = ChainOptions(media=(MediaSpan(identifier="i", offset=2, num_tokens=6),))

    assert _keys(version, options, num_tokens=12) == expected


@pytest.mark.parametrize(
    ("version", "key"),
    [
        ("0.16.0", b"abcd"),
        ("0.17.0", hashlib.sha256(b"abcd").digest()),
        ("0.31.0", ("prompt_embeds", hashlib.sha256(b"abcd").digest())),
    ],
)
def test_prompt_embeddings_are_keyed_by_the_blocks_rows(version: str, key: object) -> None:
    options = ChainOptions(prompt_embeds=[b"a", b"b", b"c", b"d", b"e"])

    assert _keys(version, options, num_tokens=5) == [(key,)]


def test_an_empty_salt_is_none() -> None:
    assert _keys("0.33.0", ChainOptions(cache_salt="")) == [None, None]


def _two_images(*, is_shared: bool, algorithm: str) -> str:
    options = ChainOptions(
        algorithm=algorithm,
        seed="0",
        media=(
            MediaSpan(identifier="same", offset=0, num_tokens=1),
            MediaSpan(identifier="same", offset=2, num_tokens=1),
        ),
        is_media_identifier_shared=is_shared,
    )
    return _chain("0.18.0", options).digests[0]


def test_pickle_tells_one_object_from_two_equal_ones_and_cbor_does_not() -> None:
    one, two = "".join(["sa", "me"]), "".join(["sa", "me"])
    root = _sha256_of_pickle("0")
    shared = _sha256_of_pickle((root, (100, 101, 102, 103), (one, one))).hex()
    apart = _sha256_of_pickle((root, (100, 101, 102, 103), (one, two))).hex()

    assert one is not two
    assert _two_images(is_shared=True, algorithm="sha256") == shared
    assert _two_images(is_shared=False, algorithm="sha256") == apart
    assert shared != apart
    cbor = [_two_images(is_shared=shared, algorithm="sha256_cbor") for shared in (True, False)]
    assert cbor[0] == cbor[1]


def test_a_salt_and_a_name_that_are_one_object_here_are_two_in_the_engine() -> None:
    text = "legal"
    root = _sha256_of_pickle("0")
    expected = _sha256_of_pickle(
        (root, (100, 101, 102, 103), ("".join(["le", "gal"]), "".join(["leg", "al"])))
    )

    options = ChainOptions(seed="0", lora_name=text, cache_salt=text)

    assert _chain("0.30.0", options).digests[0] == expected.hex()


def test_lookahead_hashes_cover_the_next_tokens_and_wait_for_them() -> None:
    root = _sha256_of_pickle("0")
    first = _sha256_of_pickle((root, (100, 101, 102, 103), (None, 104, 105)))

    options = ChainOptions(seed="0", lookahead_tokens=2)

    assert _chain("0.33.0", options, TOKENS[:6]).digests == (first.hex(),)
    assert _chain("0.33.0", options, TOKENS[:5]).digests == ()
    with pytest.raises(UsageError, match="no hashes over the tokens after a block"):
        _chain("0.32.0", options)


@pytest.mark.parametrize(
    ("version", "options"),
    [
        ("0.10.0", ChainOptions(seed="0", lora_name="sql")),
        ("0.33.0", ChainOptions(seed="0", lora_name="sql")),
        ("0.33.0", ChainOptions(algorithm="builtin")),
        ("0.12.0", ChainOptions(algorithm="xxhash", seed="0")),
        ("0.33.0", ChainOptions(root="xyz")),
        ("0.33.0", ChainOptions(prompt_embeds=[b"one row"])),
    ],
)
def test_what_a_release_cannot_hash_is_a_usage_error(version: str, options: ChainOptions) -> None:
    with pytest.raises(UsageError):
        _chain(version, options)


@given(
    first=st.lists(st.integers(0, 3), max_size=24),
    second=st.lists(st.integers(0, 3), max_size=24),
)
@settings(max_examples=50, deadline=None)
def test_equal_hashes_are_exactly_the_shared_full_blocks(
    first: list[int], second: list[int]
) -> None:
    chains = [_chain("0.33.0", ChainOptions(), tokens).digests for tokens in (first, second)]
    num_equal = sum(a == b for a, b in zip(*chains, strict=False))

    num_shared = 0
    while num_shared < min(len(first), len(second)) and first[num_shared] == second[num_shared]:
        num_shared += 1

    assert num_equal == num_shared // 4


def _requests_of_b035() -> list[tuple[list[int], ChainOptions]]:
    folder = CASES / "B035-salt-equals-adapter-name"
    requests = []
    for line in (folder / "requests.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        lora = record.get("lora") or {}
        options = ChainOptions(
            seed="0",
            lora_name=lora.get("name"),
            lora_path="/adapters/legal" if lora else None,
            cache_salt=record["body"].get("cache_salt"),
        )
        requests.append((record["body"]["prompt"], options))
    return requests


@pytest.mark.parametrize("version", ["0.11.2", "0.18.0", "0.30.0"])
def test_b035_a_salt_that_equals_an_adapters_name_shares_exactly_one_block(version: str) -> None:
    expected = json.loads(
        (CASES / "B035-salt-equals-adapter-name" / "expected.json").read_text(encoding="utf-8")
    )
    profile = load_profile(f"vllm@{version}")

    cached: set[str] = set()
    hit_tokens = []
    for tokens, options in _requests_of_b035():
        digests = chain_of(tokens, profile, options, block_size=16).digests
        num_hit = 0
        while num_hit < len(digests) and digests[num_hit] in cached:
            num_hit += 1
        hit_tokens.append(num_hit * 16)
        cached.update(digests)

    assert hit_tokens == expected["answer"]["engine_hit_tokens"]


def test_b035_tagged_keys_end_the_collision() -> None:
    profile = load_profile("vllm@0.31.0")

    chains = [
        set(chain_of(tokens, profile, options, block_size=16).digests)
        for tokens, options in _requests_of_b035()
    ]

    assert not chains[0] & chains[1]
