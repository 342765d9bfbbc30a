"""Chunks cover a prompt, and are found again wherever the same text stands."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prefixaudit.why.chunks import Chunker


def _tokens(seed: int, length: int, vocabulary: int = 50_000) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, vocabulary, length, dtype=np.uint32)


@given(st.integers(0, 400), st.integers(1, 5), st.integers(0, 9))
def test_chunks_cover_the_prompt_once(length: int, vocabulary: int, seed: int) -> None:
    chunks = Chunker().chunks(_tokens(seed, length, vocabulary))

    edges = [0, *chunks.ends.tolist()]
    assert chunks.starts.tolist() == edges[:-1]
    assert edges[-1] == length
    inner = np.diff(edges)[1:-1]
    assert (inner >= 9).all()


@given(st.integers(1, 300), st.integers(0, 9))
def test_moved_text_gives_the_same_chunks(shift: int, seed: int) -> None:
    text = _tokens(seed, 2_000)
    chunker = Chunker()
    here = chunker.chunks(text)

    there = chunker.chunks(np.concatenate([_tokens(99, shift), text]))

    # All but those at the ends, which have other neighbours.
    assert set(here.hashes[2:-2].tolist()) <= set(there.hashes.tolist())


def test_chunks_are_as_long_as_said() -> None:
    chunks = Chunker().chunks(_tokens(0, 100_000))

    # One place in 17 is the smallest of its 17.
    assert abs((chunks.ends - chunks.starts).mean() - 17) < 1


def test_equal_chunks_have_equal_hashes_and_others_dont() -> None:
    chunker = Chunker()
    tokens = _tokens(1, 5_000)
    pieces = chunker.chunks(tokens)

    by_hash: dict[int, tuple[int, ...]] = {}
    for start, end, number in zip(pieces.starts, pieces.ends, pieces.hashes.tolist(), strict=True):
        piece = tuple(tokens[start:end].tolist())
        assert by_hash.setdefault(number, piece) == piece
    assert len(by_hash) == len(set(by_hash.values()))


def test_a_run_of_one_token_is_cut_too() -> None:
    chunks = Chunker().chunks(np.zeros(1_000, dtype=np.uint32))

    assert (chunks.ends - chunks.starts).max() <= 20
