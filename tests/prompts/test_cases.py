"""Figures of the reproduction cases, worked out by their authors: one byte is one token."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import TokenArray
from prefixaudit.prompts import Replayer, ReplayOptions, ServerRules
from tests.prompts.cases import case_folder, expected, requests_of

BOS = 256


def replayed(name: str, options: ReplayOptions | None = None) -> list[Prompt]:
    replayer = Replayer(case_folder(name), options)
    prompts = []
    for request in requests_of(name):
        prompt = replayer.replay(request)
        assert isinstance(prompt, Prompt), prompt
        prompts.append(prompt)
    return prompts


def tokens(prompt: Prompt) -> TokenArray:
    assert isinstance(prompt.tokens, np.ndarray)
    return prompt.tokens


def common(one: TokenArray, other: TokenArray) -> int:
    """Length of the longest common prefix, by walking along both."""
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


@pytest.mark.parametrize("name", ["B001", "B003", "B004", "B007", "B009", "B015", "B017"])
def test_prompt_and_common_prefix_lengths_are_the_cases(name: str) -> None:
    prompts = replayed(name)

    figures = [
        (
            prompt.num_prompt_tokens,
            max(
                (common(tokens(prompt), tokens(earlier)) for earlier in prompts[:place]), default=0
            ),
        )
        for place, prompt in enumerate(prompts)
    ]
    assert figures == [
        (request["prompt_tokens"], request["longest_common_prefix_tokens"])
        for request in expected(name)["requests"]
    ]


def test_b003_prints_the_arrival_date_and_not_todays() -> None:
    folder = case_folder("B003")
    replayer = Replayer(folder)

    dates = [replayer.render(request).text.split("\n")[0] for request in requests_of("B003")]
    assert [date[-len("02 Mar 2026") :] for date in dates] == expected("B003")["rendered_dates"]


def test_b004_prompt_is_no_prefix_of_the_next_one() -> None:
    prompts = replayed("B004")

    lost = [
        one.num_prompt_tokens - common(tokens(one), tokens(other))
        for one, other in pairwise(prompts)
    ]
    assert lost == [expected("B004")["lost_tail_tokens_of_previous_prompt"]] * 2


def test_b006_template_drops_the_thought_that_the_body_holds() -> None:
    first, second = replayed("B006")

    assert [p.num_prompt_tokens for p in (first, second)] == [
        request["prompt_tokens"] for request in expected("B006")["requests"]
    ]
    assert (
        common(tokens(first), tokens(second)) == expected("B006")["first_divergent_token_request_1"]
    )


def test_b011_only_completions_get_a_second_begin_token() -> None:
    prompts = replayed("B011")

    assert [prompt.num_prompt_tokens for prompt in prompts] == expected("B011")["prompt_tokens"]
    leading = [int(np.argmin(tokens(prompt) == BOS)) for prompt in prompts]
    assert leading == expected("B011")["leading_bos"]


@pytest.mark.parametrize("rule", ["as-sent", "object"])
def test_b012_arguments_part_from_the_answer_at_their_first_character(rule: str) -> None:
    options = ReplayOptions(rules=ServerRules(tool_arguments=rule))  # type: ignore[arg-type]
    first, second = replayed("B012", options)

    assert isinstance(first.generated_token_ids, np.ndarray)
    pool = np.concatenate([tokens(first), first.generated_token_ids])
    prefix = common(pool, tokens(second))

    assert prefix == expected("B012")["first_divergent_token_request_1"]


def test_b013_prompts_part_inside_the_billing_header() -> None:
    prompts = replayed("B013")

    first = expected("B013")["first_divergent_token"]
    assert [common(tokens(prompts[0]), tokens(other)) for other in prompts[1:]] == [first, first]


def test_b017_null_content_is_the_word_none_until_a_rule_says_otherwise() -> None:
    kept = Replayer(case_folder("B017"))
    empty = Replayer(case_folder("B017"), ReplayOptions(rules=ServerRules(null_content="empty")))
    requests = requests_of("B017")

    assert ["None" in kept.render(request).text for request in requests] == expected("B017")[
        "literal_None_in_prompt"
    ]
    assert not any("None" in empty.render(request).text for request in requests)
    assert kept.statistics.num_null_content_prompts == 2
