"""The waterfall: places add up whatever the log is, and each holds what it should."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixaudit.chain import TraceBuilder
from prefixaudit.core.identity import Identity
from prefixaudit.core.model import ModelSpec
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import BlockHashes, MediaSpan, Request, Source, TokenIds
from prefixaudit.core.trace import BlockTrace
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.core.why import Waterfall
from prefixaudit.cost.flops import prefill_flops, saved_flops
from prefixaudit.families import describe
from prefixaudit.pool import replay_lru
from prefixaudit.why.pairing import Pairing
from prefixaudit.why.waterfall import WaterfallInput, build_waterfall

BLOCK = 4
MODEL: ModelSpec = describe(
    {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 100,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    }
)


def prompt(
    ids: list[int],
    *,
    number: int = 0,
    salt: str | None = None,
    tenant: str | None = None,
    reads_cache: bool = True,
    arrival_s: float | None = None,
    media: tuple[MediaSpan, ...] = (),
    answer: list[int] | None = None,
) -> Prompt:
    tokens = np.array(ids, dtype=np.uint32)
    return Prompt(
        request=Request(
            request_id=f"r{number}",
            source=Source("log", number + 1),
            prompt=TokenIds(token_ids=tokens, media=media),
            arrival_s=UNKNOWN if arrival_s is None else arrival_s,
            identity=Identity(cache_salt=salt, tenant=UNKNOWN if tenant is None else tenant),
            reads_cache=reads_cache,
        ),
        tokens=tokens,
        num_prompt_tokens=len(ids),
        generated_token_ids=None if answer is None else np.array(answer, dtype=np.uint32),
        media=media,
    )


def waterfall_of(
    prompts: list[Prompt],
    *,
    capacity_blocks: int | None = None,
    key_fields: tuple[str, ...] = ("cache_salt",),
    **more: Any,
) -> tuple[Waterfall, BlockTrace]:
    builder = TraceBuilder(block_size=BLOCK, cache_generated=True)
    pairing = Pairing(None, cache_generated=True)
    for number, item in enumerate(prompts):
        builder.add(item, number)
        pairing.add(item)
    trace = builder.finish()
    found = []
    for capacity in (capacity_blocks, None):
        _, lookups = replay_lru(
            trace,
            trace.namespaces(key_fields),
            capacity_blocks=capacity,
            min_recomputed_tokens=1,
            flops_by_depth=None,
        )
        found.append(lookups.num_cached_tokens)
    lengths = trace.num_prompt_tokens
    components = prefill_flops(MODEL, np.maximum(lengths, 1), np.zeros_like(lengths))
    waterfall = build_waterfall(
        WaterfallInput(
            trace=trace,
            hits=found[0],
            endless_hits=found[1],
            key_fields=key_fields,
            min_recomputed_tokens=1,
            shared=pairing.shared() if pairing.num_compared else None,
            saved_flops=lambda tokens: saved_flops(MODEL, tokens),
            prefill_flops=np.where(lengths > 0, sum(components.values()), 0.0),
            **more,
        )
    )
    return waterfall, trace


def tokens_by_place(waterfall: Waterfall) -> dict[str, int]:
    return {place.name: place.num_tokens for place in waterfall.places if place.num_tokens}


IDS = st.lists(st.integers(0, 3), min_size=1, max_size=60)
LOGS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 40), IDS, st.sampled_from([None, "a"]), st.booleans()
    ),
    min_size=1,
    max_size=12,
)
BASES = [np.random.default_rng(seed).integers(0, 50, 60).tolist() for seed in range(4)]


@settings(deadline=None)
@given(LOGS, st.sampled_from([None, 0, 3, 12]), st.booleans())
def test_every_token_is_in_one_place(
    drawn: list[Any], capacity_blocks: int | None, has_times: bool
) -> None:
    prompts = [
        prompt(
            [*BASES[base][:length], *ids, *BASES[(base + 1) % 4][:length]],
            number=number,
            salt=salt,
            reads_cache=reads,
            arrival_s=float((7 * number) % 5) if has_times else None,
        )
        for number, (base, length, ids, salt, reads) in enumerate(drawn)
    ]

    waterfall, trace = waterfall_of(prompts, capacity_blocks=capacity_blocks)

    assert (waterfall.by_request >= 0).all()
    assert (waterfall.by_request.sum(axis=0) == trace.num_prompt_tokens).all()
    assert sum(place.num_tokens for place in waterfall.places) == waterfall.num_prompt_tokens
    flops = [place.flops for place in waterfall.places]
    assert sum(number for number in flops if number is not None) == pytest.approx(
        waterfall.prefill_flops, rel=1e-9
    )
    for dimension in {group.dimension for group in waterfall.groups}:
        groups = [group for group in waterfall.groups if group.dimension == dimension]
        assert sum(group.num_requests for group in groups) == trace.num_requests
        total = sum(place.num_tokens for group in groups for place in group.places)
        assert total == waterfall.num_prompt_tokens


def test_new_text_and_the_last_token() -> None:
    text = list(range(12))

    waterfall, _ = waterfall_of([prompt(text), prompt(text, number=1)])

    # The second prompt is the first: two blocks hit, the third is kept back for the last token.
    assert tokens_by_place(waterfall) == {"reused": 8, "new-text": 12, "partial-block": 4}


def test_tokens_of_a_block_that_differs_further_on() -> None:
    waterfall, _ = waterfall_of(
        [prompt([1, 2, 3, 4, 5, 6, 7, 8]), prompt([1, 2, 3, 4, 5, 6, 9, 9], number=1)]
    )

    assert tokens_by_place(waterfall) == {"reused": 4, "new-text": 10, "partial-block": 2}


def test_separated_by_salt() -> None:
    text = list(range(10))
    prompts = [prompt(text, salt="a"), prompt(text, number=1, salt="b")]

    waterfall, _ = waterfall_of(prompts)

    assert tokens_by_place(waterfall) == {
        "separated-by-key": 8,
        "new-text": 10,
        "partial-block": 2,
    }
    [entry] = waterfall.separated_by
    assert (entry.fields, entry.num_requests, entry.num_tokens) == (("cache_salt",), 1, 8)


def test_evicted() -> None:
    one, other = list(range(9)), list(range(20, 29))
    prompts = [prompt(one), prompt(other, number=1), prompt(one, number=2)]

    waterfall, _ = waterfall_of(prompts, capacity_blocks=2)

    assert tokens_by_place(waterfall) == {"new-text": 18, "evicted": 8, "partial-block": 1}


def test_cache_that_is_not_read() -> None:
    text = list(range(9))
    prompts = [prompt(text), prompt(text, number=1, reads_cache=False)]

    waterfall, _ = waterfall_of(prompts)

    assert tokens_by_place(waterfall) == {"new-text": 9, "cache-not-read": 8, "partial-block": 1}


def test_other_replica() -> None:
    """Two servers of one pool each: what the key alone would share was on the other one."""
    text = list(range(9))
    prompts = [prompt(text), prompt(text, number=1)]

    waterfall, _ = waterfall_of(prompts)
    assert "other-replica" not in tokens_by_place(waterfall)

    nothing = np.zeros(2, dtype=np.int64)
    builder = TraceBuilder(block_size=BLOCK, cache_generated=True)
    for number, item in enumerate(prompts):
        builder.add(item, number)
    apart = build_waterfall(
        WaterfallInput(
            trace=builder.finish(),
            hits=nothing,
            endless_hits=nothing,
            key_fields=(),
            min_recomputed_tokens=1,
            has_pools_of_servers=True,
        )
    )
    # The last token is kept back; without pairing it isn't known that it was seen.
    assert tokens_by_place(apart) == {"new-text": 10, "other-replica": 8}


def test_block_alignment_of_a_hybrid_model() -> None:
    text = list(range(11))
    prompts = [prompt(text), prompt([*text[:7], 90, 91, 92, 93], number=1)]

    waterfall, _ = waterfall_of(prompts, fine_block_size=2)

    # Seven tokens are shared: one block of four hits, one of two more would, the last is partial.
    assert tokens_by_place(waterfall) == {
        "reused": 4,
        "new-text": 15,
        "block-alignment": 2,
        "partial-block": 1,
    }


def test_unstable_text_behind_another_beginning() -> None:
    text = np.random.default_rng(3).integers(0, 1000, 200).tolist()
    prompts = [prompt([1, *text]), prompt([2, *text], number=1)]

    waterfall, _ = waterfall_of(prompts)

    assert tokens_by_place(waterfall) == {"new-text": 202, "unstable-prefix": 200}


def test_other_image_is_not_reused() -> None:
    text = np.random.default_rng(3).integers(0, 1000, 100).tolist()
    ids = [*text[:20], *[7] * 16, *text[20:]]
    spans = [(MediaSpan(identifier=name, offset=20, num_tokens=16),) for name in ("cat", "dog")]
    prompts = [prompt(ids, media=spans[0]), prompt(ids, number=1, media=spans[1])]

    waterfall, _ = waterfall_of(prompts)

    # Twenty tokens before the image; of the second prompt the image's are new, the rest was seen.
    assert tokens_by_place(waterfall) == {
        "reused": 20,
        "new-text": 116 + 16,
        "unstable-prefix": 80,
    }


def test_answers_are_seen_too() -> None:
    text = list(range(8))
    prompts = [
        prompt(text, answer=[50, 51, 52, 53, 54]),
        prompt([*text, 50, 51, 52, 53, 60], number=1),
    ]

    waterfall, _ = waterfall_of(prompts)

    assert tokens_by_place(waterfall) == {"reused": 12, "new-text": 9}


def test_log_of_block_ids() -> None:
    def ids(*numbers: int) -> Prompt:
        hashes = BlockHashes(
            hash_ids=np.array(numbers, dtype=np.uint64),
            block_size=BLOCK,
            num_prompt_tokens=BLOCK * len(numbers),
        )
        request = Request(request_id="r", source=Source("log", 1), prompt=hashes)
        return Prompt(
            request=request,
            tokens=hashes,
            num_prompt_tokens=hashes.num_prompt_tokens,
            generated_token_ids=UNKNOWN,
        )

    waterfall, _ = waterfall_of([ids(1, 2, 3), ids(1, 2, 3), ids(1, 2, 4)])

    # The second prompt's last block is kept back for the last token.
    assert tokens_by_place(waterfall) == {"reused": 16, "new-text": 16, "partial-block": 4}


def test_groups() -> None:
    text = list(range(8))
    prompts = [
        prompt(text, tenant="acme", arrival_s=1_772_445_000.0),
        prompt(text, number=1, tenant="bob", arrival_s=1_772_449_000.0),
    ]

    waterfall, _ = waterfall_of(prompts, endpoint=(("/v1/completions",), np.zeros(2, np.int32)))

    found = [(group.dimension, group.value, group.num_requests) for group in waterfall.groups]
    assert found == [
        ("tenant", "acme", 1),
        ("tenant", "bob", 1),
        ("endpoint", "/v1/completions", 2),
        ("hour", "2026-03-02T09:00Z", 1),
        ("hour", "2026-03-02T10:00Z", 1),
    ]
