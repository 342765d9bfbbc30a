"""Steps of the scheduler, worked out by hand: budget, admission, preemption, visibility."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixaudit.errors import ConfigurationError
from prefixaudit.pool.vllm.rules import PoolRules
from prefixaudit.pool.vllm.scheduler import NEVER, Scheduler, SchedulerRules, ServedRequest, Step
from tests.pool.vllm.pools import BLOCK, full, mamba, request, rules

FULL = rules(full())


def served(number: int, prompt: int, answer: int, keys: list[int] | None = None) -> ServedRequest:
    own = request(number, prompt + answer, keys)
    return ServedRequest(
        number=number,
        keys=own.keys,
        num_prompt_tokens=prompt,
        num_tokens=prompt,
        num_answer_tokens=answer,
    )


def scheduler(
    usable: int,
    *requests: ServedRequest,
    pool: PoolRules = FULL,
    budget: int = 100,
    max_num_seqs: int = 10,
    reserves_whole_prompt: bool = True,
    watermark_blocks: int = 0,
    max_model_tokens: int = 1_000,
) -> Scheduler:
    built = Scheduler(
        pool,
        usable + 1,
        SchedulerRules(
            max_num_batched_tokens=budget,
            max_num_seqs=max_num_seqs,
            max_model_tokens=max_model_tokens,
            reserves_whole_prompt=reserves_whole_prompt,
            watermark_blocks=watermark_blocks,
        ),
    )
    for each in requests:
        built.add(each)
    return built


def batch(step: Step) -> list[tuple[int, int, int]]:
    return [(each.number, start, num_tokens) for each, start, num_tokens in step.batch]


def test_prompt_is_computed_in_chunks_of_the_budget() -> None:
    run = scheduler(20, served(0, 10, 2), budget=4)

    steps = [batch(run.step()) for _ in range(5)]

    assert steps == [[(0, 0, 4)], [(0, 4, 4)], [(0, 8, 2)], [(0, 10, 1)], []]


def test_step_that_completes_the_prompt_gives_the_first_token() -> None:
    first = served(0, 10, 1)
    run = scheduler(20, first)

    step = run.step()

    assert step.finished == [first]
    assert (first.first_step, first.finish_step, first.num_scheduled_tokens) == (0, 0, 10)
    assert run.manager.num_free_blocks == 20


def test_decoding_comes_before_waiting_prompts() -> None:
    run = scheduler(20, served(0, 4, 5), budget=6)
    run.step()
    run.add(served(1, 9, 1))

    assert batch(run.step()) == [(0, 4, 1), (1, 0, 5)]


def test_no_more_run_than_allowed() -> None:
    run = scheduler(20, served(0, 4, 3), served(1, 4, 3), served(2, 4, 3), max_num_seqs=2)

    assert [number for number, _, _ in batch(run.step())] == [0, 1]


def test_first_waiting_request_that_does_not_fit_holds_back_the_others() -> None:
    small = served(2, 4, 1)
    run = scheduler(4, served(0, 8, 3), served(1, 12, 1), small)

    assert [number for number, _, _ in batch(run.step())] == [0]
    assert small.first_step == NEVER


def test_whole_prompt_must_fit_unless_that_is_switched_off() -> None:
    """4 blocks, of which a running request takes 2; a prompt of 4 blocks comes in chunks."""

    def second_step(reserves_whole_prompt: bool) -> list[tuple[int, int, int]]:
        run = scheduler(
            4,
            served(0, 4, 9),
            served(1, 16, 1),
            budget=4,
            reserves_whole_prompt=reserves_whole_prompt,
        )
        run.step()
        return batch(run.step())

    assert second_step(True) == [(0, 4, 1)]
    assert second_step(False) == [(0, 4, 1), (1, 0, 3)]


def test_watermark_keeps_blocks_free_while_others_run() -> None:
    def first_step(watermark_blocks: int) -> list[int]:
        run = scheduler(4, served(0, 8, 3), served(1, 8, 3), watermark_blocks=watermark_blocks)
        return [number for number, _, _ in batch(run.step())]

    assert first_step(0) == [0, 1]
    assert first_step(1) == [0]


def test_later_request_of_the_same_step_hits_what_is_scheduled() -> None:
    second = served(1, 9, 1, [1, 2])
    run = scheduler(20, served(0, 9, 1, [1, 2]), second)

    assert batch(run.step()) == [(0, 0, 9), (1, 8, 1)]
    assert second.num_cached_tokens == 8


def test_recurrent_state_is_hit_from_the_next_step_on() -> None:
    pool = rules(full(), mamba())
    second = served(1, 9, 1, [1, 2])
    run = scheduler(40, served(0, 9, 1, [1, 2]), second, pool=pool)

    # The state at 8 is computed in step 0, so the second request waits.
    assert batch(run.step()) == [(0, 0, 8)]
    assert batch(run.step()) == [(0, 8, 1), (1, 8, 1)]


@pytest.mark.parametrize(
    ("version", "expected"), [("0.22.0", [(0, 0, 8)]), ("0.33.0", [(0, 0, 4)])]
)
def test_chunk_ends_at_the_last_block_whose_state_can_be_hit(
    version: str, expected: list[tuple[int, int, int]]
) -> None:
    """Of 8 tokens 7 can be hit; 0.33.0 leaves the last one out, 0.22.0 does not."""
    run = scheduler(40, served(0, 8, 1), pool=rules(full(), mamba(), version=version))

    assert batch(run.step()) == expected


def test_chunk_that_is_not_the_last_ends_at_a_block() -> None:
    run = scheduler(40, served(0, 15, 1), pool=rules(full(), mamba()), budget=6)

    assert [batch(run.step()) for _ in range(4)] == [
        [(0, 0, 4)],
        [(0, 4, 4)],
        [(0, 8, 4)],
        [(0, 12, 3)],
    ]


def test_last_admitted_is_preempted_and_computes_again() -> None:
    """4 blocks: two requests of 7 tokens hold 2 each; both need a third one for token 9."""
    first, second = served(0, 7, 4), served(1, 7, 4)
    run = scheduler(4, first, second)
    # Tokens 0 to 6, then 7, then token 8 in a third block.
    run.step()
    run.step()

    step = run.step()

    assert step.preempted == [second]
    assert batch(step) == [(0, 8, 1)]
    assert second.num_discarded_tokens == 8
    # It is first in the queue again, hits the block that survived and computes the rest.
    while run.running or run.waiting:
        assert run.step().stuck is None
    assert second.num_preemptions == 1
    assert second.num_cached_tokens == 0
    assert second.num_hit_tokens > 0
    assert second.num_scheduled_tokens + second.num_hit_tokens == 7 + 4 - 1 + 8


def test_nobody_is_admitted_in_a_step_that_preempts() -> None:
    run = scheduler(4, served(0, 7, 4), served(1, 7, 4))
    run.step()
    run.step()
    run.add(served(2, 1, 1))

    assert [number for number, _, _ in batch(run.step())] == [0]


def test_prompt_larger_than_the_pool_is_stuck() -> None:
    large = served(0, 20, 1)
    run = scheduler(4, large, served(1, 4, 1))

    assert run.step().stuck is large
    assert run.withdraw_first() is large
    assert [number for number, _, _ in batch(run.step())] == [1]


def test_answer_larger_than_the_pool_is_stuck() -> None:
    endless = served(0, 7, 40)
    run = scheduler(4, endless)

    while (step := run.step()).stuck is None:
        assert step.number < 20

    assert step.stuck is endless
    assert step.preempted == [endless]
    # 4 blocks of 4 hold 16 tokens; the one that follows is known, but has no slot.
    assert endless.num_discarded_tokens == 16


def test_answer_ends_at_the_longest_context() -> None:
    first = served(0, 7, 40)
    run = scheduler(40, first, max_model_tokens=12)
    while run.running or run.waiting:
        run.step()

    assert first.num_tokens == 12


REQUEST = st.tuples(st.integers(0, 6), st.integers(1, 30), st.integers(1, 20), st.integers(0, 2))


@given(st.lists(REQUEST, max_size=10), st.integers(13, 30), st.integers(4, 20), st.integers(1, 5))
def test_quiet_steps_can_be_skipped(
    arrivals: list[tuple[int, int, int, int]], usable: int, budget: int, max_num_seqs: int
) -> None:
    def run(skips: bool) -> list[tuple[int, ...]]:
        """Serve the arrivals, (steps since the last one, prompt, answer, common blocks) each."""
        of = scheduler(usable, budget=budget, max_num_seqs=max_num_seqs)
        requests = []
        for number, (gap, prompt, answer, common) in enumerate(arrivals):
            advance(of, of.num_steps + gap, skips)
            keys = [1, 2][: min(common, prompt // BLOCK)]
            requests.append(served(number, prompt, answer, keys))
            of.add(requests[-1])
        advance(of, None, skips)
        return [
            (
                each.num_cached_tokens,
                each.first_step,
                each.finish_step,
                each.num_preemptions,
                each.num_scheduled_tokens,
            )
            for each in requests
        ]

    assert run(skips=True) == run(skips=False)


def advance(of: Scheduler, until: int | None, skips: bool) -> None:
    """Step until a step number, or until nobody is left."""
    while of.running or of.waiting if until is None else of.num_steps < until:
        quiet = of.quiet_steps() if skips else 0
        if until is not None:
            quiet = min(quiet, until - of.num_steps)
        if quiet:
            of.skip(quiet)
        else:
            assert of.step().stuck is None


def test_steps_within_a_block_are_quiet() -> None:
    run = scheduler(20, served(0, 5, 9))
    run.step()

    # Tokens 5 and 6 stay in the second block; token 7 completes it.
    assert run.quiet_steps() == 2
    run.skip(2)
    assert run.quiet_steps() == 0
    assert batch(run.step()) == [(0, 7, 1)]


def test_waiting_request_that_was_not_refused_is_no_quiet_step() -> None:
    run = scheduler(20, served(0, 5, 9))
    run.step()
    run.add(served(1, 5, 9))

    assert run.quiet_steps() == 0


def test_settings_below_1_are_refused() -> None:
    with pytest.raises(ConfigurationError):
        SchedulerRules(max_num_batched_tokens=0, max_num_seqs=1, max_model_tokens=1)
