"""The canonical chain: equal digests are equal tokens, media and identities, and nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixaudit.chain import canonical_chain
from prefixaudit.chain.canonical import encode_identity
from prefixaudit.core.identity import Identity
from prefixaudit.core.prompt import MediaSpan
from prefixaudit.core.unknown import UNKNOWN
from tests.chain.prompts import token_array

# Texts that would collide if values were only put side by side.
values = st.sampled_from([UNKNOWN, None, "", "a", "ab", "b", "\x00", "\x01", "UNKNOWN", "\ud800"])
identities = st.builds(
    Identity, lora_name=values, lora_revision=values, lora_path=values, cache_salt=values
)


def test_digests_are_sha_256_of_the_documented_encoding() -> None:
    """Written out by hand: lengths uint64, tokens uint32, all little-endian."""
    about = b"prefixaudit tokens 1"
    root = hashlib.sha256(len(about).to_bytes(8, "little") + about).digest()
    medium = b"".join(
        [
            (1).to_bytes(8, "little"),
            (-1).to_bytes(8, "little", signed=True),
            (2).to_bytes(8, "little"),
            (3).to_bytes(8, "little"),
            b"cat",
        ]
    )
    two = (2).to_bytes(8, "little")
    first_medium = medium.replace(
        (-1).to_bytes(8, "little", signed=True), (1).to_bytes(8, "little")
    )
    first = hashlib.sha256(root + two + bytes([7, 0, 0, 0, 8, 0, 0, 0]) + first_medium).digest()
    second = hashlib.sha256(first + two + bytes([8, 0, 0, 0, 0, 1, 0, 0]) + medium).digest()
    third = hashlib.sha256(second + two + bytes([5, 0, 0, 0, 6, 0, 0, 0]) + bytes(8)).digest()
    media = (MediaSpan(identifier="cat", offset=1, num_tokens=2),)

    chain = canonical_chain(token_array([7, 8, 8, 256, 5, 6, 1]), 2, media=media)

    assert chain == [first, second, third]


@given(identities, identities)
def test_two_identities_have_one_root_only_if_they_are_equal(one: Identity, two: Identity) -> None:
    assert (encode_identity(one) == encode_identity(two)) == (one == two)


@pytest.mark.parametrize("name", [field.name for field in fields(Identity)])
def test_every_identity_field_separates_chains(name: str) -> None:
    tokens = token_array(range(4))
    chains = [
        canonical_chain(tokens, 4, Identity(**{name: value}))[0]
        for value in (UNKNOWN, None, "", "x", "y")
    ]

    assert len({*chains, canonical_chain(tokens, 4)[0]}) == 6


def test_partial_block_has_no_hash() -> None:
    assert canonical_chain(token_array(range(3)), 4) == []
    assert len(canonical_chain(token_array(range(9)), 4)) == 2


def test_medium_enters_every_block_that_it_overlaps_and_no_other() -> None:
    tokens = token_array([0] * 16)
    plain = canonical_chain(tokens, 4)
    cat, dog = (
        canonical_chain(tokens, 4, media=(MediaSpan(identifier=name, offset=6, num_tokens=3),))
        for name in ("cat", "dog")
    )

    assert cat[0] == dog[0] == plain[0]
    assert len({cat[1], dog[1], plain[1]}) == 3


def test_place_of_a_medium_within_a_block_matters() -> None:
    tokens = token_array([0] * 8)
    chains = {
        canonical_chain(tokens, 8, media=(MediaSpan(identifier="cat", offset=at, num_tokens=3),))[0]
        for at in range(5)
    }

    assert len(chains) == 5


def test_order_in_which_media_are_named_does_not_matter() -> None:
    one = MediaSpan(identifier="cat", offset=0, num_tokens=2)
    two = MediaSpan(identifier="dog", offset=2, num_tokens=2)
    tokens = token_array([0] * 4)

    assert canonical_chain(tokens, 4, media=(one, two)) == canonical_chain(
        tokens, 4, media=(two, one)
    )


@given(
    st.lists(st.integers(0, 1), max_size=12),
    st.lists(st.integers(0, 1), max_size=12),
    st.integers(1, 4),
)
def test_equal_hashes_are_exactly_the_shared_full_blocks(
    one: list[int], two: list[int], block_size: int
) -> None:
    shared = next(
        (i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b),
        min(len(one), len(two)),
    )
    first = canonical_chain(token_array(one), block_size)
    second = canonical_chain(token_array(two), block_size)

    equal = [a == b for a, b in zip(first, second, strict=False)]

    assert equal == [i < shared // block_size for i in range(len(equal))]


def test_ids_are_read_as_numbers_whatever_the_array() -> None:
    tokens = np.array([1, 2, 3, 4], dtype=">u4")

    assert canonical_chain(tokens, 2) == canonical_chain(token_array([1, 2, 3, 4]), 2)


def test_block_size_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="block size 0"):
        canonical_chain(token_array([1]), 0)
