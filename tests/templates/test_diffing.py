"""A new template on our conversations and on a log, against a plain simulation of the pool."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from prefixaudit.core.template import LogChange, TemplateDiff
from prefixaudit.deployment import Overrides, load_deployment
from prefixaudit.errors import UsageError
from prefixaudit.logs import read_logs
from prefixaudit.prompts import Replayer, ReplayOptions
from prefixaudit.templates import load_source
from prefixaudit.templates.diffing import DiffOptions, diff_templates
from prefixaudit.templates.residents import useless_blocks
from prefixaudit.templates.rolling_out import place_in_chat
from tests.templates.rendering import SAMPLE_MODEL, STABLE

BLOCK = 4
NEW_START = STABLE.replace("{{- bos_token }}", "{{- bos_token ~ '<|note|>' }}")
NEW_END = STABLE.replace("{{ '<|assistant|>' }}", "{{ '<|assistant|><|note|>' }}")


def body(*texts: str) -> dict[str, object]:
    roles = ("system", "user", "assistant")
    return {
        "model": "m",
        "messages": [
            {"role": roles[0] if not place else roles[2 - place % 2], "content": text}
            for place, text in enumerate(texts)
        ],
    }


SYSTEM = "You are the assistant of the harbour office."
CHATS = [
    body(SYSTEM, "Which berth is free?"),
    body(SYSTEM, "Which berth is free?", "Berth seven.", "And the next one?"),
    body(SYSTEM, "Who is the pilot?"),
    body("Another system text.", "Who is the pilot?"),
    body(SYSTEM, "Who is the pilot?", "Jansen.", "Until when?"),
    body(SYSTEM, "Which berth is free?", "Berth seven.", "And the next one?", "Nine.", "Thanks."),
]


@dataclass(frozen=True)
class Setup:
    folder: Path

    def diff(
        self,
        old: str,
        new: str,
        chats: Sequence[object] | None = CHATS,
        *,
        share: float = 0.5,
        capacity_blocks: int | None = None,
        gpu: str | None = None,
    ) -> TemplateDiff:
        paths = []
        for name, template in (("old", old), ("new", new)):
            path = self.folder / f"{name}.jinja"
            path.write_text(template, encoding="utf-8")
            paths.append(path)
        log = []
        if chats is not None:
            log = [str(self.log(chats))]
        deployment = load_deployment(
            None,
            Overrides(model_dir=SAMPLE_MODEL, block_size=BLOCK, capacity_blocks=capacity_blocks),
        )
        return diff_templates(
            load_source(paths[0], SAMPLE_MODEL),
            load_source(paths[1], SAMPLE_MODEL),
            deployment=deployment,
            log_paths=log,
            options=DiffOptions(roll_out_share=share, gpu=gpu),
        )

    def log(self, chats: Sequence[object]) -> Path:
        path = self.folder / "log.jsonl"
        path.write_text("".join(json.dumps(chat) + "\n" for chat in chats), encoding="utf-8")
        return path


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def on_log(diff: TemplateDiff) -> LogChange:
    assert diff.log is not None
    return diff.log


# --- the plain simulation: an endless pool is a set of prefixes


def prompts_of(log: Path, template: str) -> list[tuple[int, ...]]:
    replayer = Replayer(SAMPLE_MODEL, ReplayOptions(chat_template=template))
    prompts = []
    for request in read_logs([str(log)]):
        found = replayer.replay(request)  # type: ignore[arg-type]
        prompts.append(tuple(found.tokens.tolist()))  # type: ignore[union-attr]
    return prompts


def blocks_of(prompt: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [prompt[:end] for end in range(BLOCK, len(prompt) + 1, BLOCK)]


def hits_of(prompts: Iterable[tuple[int, ...]]) -> list[int]:
    pool: set[tuple[int, ...]] = set()
    hits = []
    for prompt in prompts:
        blocks = blocks_of(prompt)
        count = 0
        for block in blocks[: (len(prompt) - 1) // BLOCK]:
            if block not in pool:
                break
            count += 1
        hits.append(count * BLOCK)
        pool.update(blocks)
    return hits


@pytest.mark.parametrize("new", [NEW_START, NEW_END, STABLE])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_log_figures_are_those_of_a_plain_simulation(setup: Setup, new: str, share: float) -> None:
    log = on_log(setup.diff(STABLE, new, share=share))
    path = setup.folder / "log.jsonl"
    old_prompts, new_prompts = prompts_of(path, STABLE), prompts_of(path, new)
    first = round(len(CHATS) * share)
    steady = hits_of(new_prompts)
    rolled = hits_of([*old_prompts[:first], *new_prompts[first:]])
    resident = {block for prompt in old_prompts[:first] for block in blocks_of(prompt)}
    wanted = {block for prompt in new_prompts for block in blocks_of(prompt)}

    assert log.before.num_cached_tokens == sum(hits_of(old_prompts))
    assert log.after.num_cached_tokens == sum(steady)
    assert log.before.num_prompt_tokens == sum(map(len, old_prompts))
    assert log.roll_out.num_hit_tokens_after == sum(rolled[first:])
    assert log.roll_out.num_lost_tokens == sum(steady[first:]) - sum(rolled[first:])
    assert log.roll_out.num_resident_tokens == BLOCK * len(resident)
    assert log.roll_out.num_useless_tokens == BLOCK * len(resident - wanted)
    losing = [s > r for s, r in zip(steady[first:], rolled[first:], strict=True)]
    assert log.roll_out.num_requests_until_warm == max(
        (place + 1 for place, loses in enumerate(losing) if loses), default=0
    )


def test_same_template_changes_nothing(setup: Setup) -> None:
    diff = setup.diff(STABLE, STABLE)
    log = on_log(diff)

    assert {prompt.kind for prompt in diff.prompts} == {"same"}
    assert not diff.answers
    assert not diff.findings
    assert (log.num_same, log.num_changed) == (len(CHATS), 0)
    assert log.roll_out.num_useless_tokens == log.roll_out.num_lost_tokens == 0
    assert log.before == log.after


def test_token_at_the_start_makes_the_whole_pool_useless(setup: Setup) -> None:
    log = on_log(setup.diff(STABLE, NEW_START))

    assert log.roll_out.useless_share == 1.0
    assert log.first_changed == ((1, len(CHATS)),)
    assert log.changed_at == (("before the first message", len(CHATS)),)
    assert log.num_prompt_tokens_kept == len(CHATS)


def test_change_of_the_tail_leaves_the_pool_useful(setup: Setup) -> None:
    """Only the last block of a prompt can hold the generation prompt."""
    log = on_log(setup.diff(STABLE, NEW_END))

    assert log.changed_at == (("behind the last message", len(CHATS)),)
    assert log.roll_out.useless_share is not None
    assert log.roll_out.useless_share < 0.3


@pytest.mark.parametrize(
    ("character", "place"),
    [
        (0, "before the first message"),
        (4, "inside a message (system)"),
        (8, "before a message (user)"),
        (12, "inside a message (user)"),
        (16, "behind the last message"),
    ],
)
def test_place_of_a_character(character: int, place: str) -> None:
    """The first text stands at 3 to 7, the second one, which is in parts, at 11 to 15."""
    messages: list[dict[str, object]] = [
        {"role": "system", "content": "tide"},
        {"role": "assistant", "content": None},
        {"role": "user", "content": [{"type": "text", "text": "quay"}]},
    ]

    assert place_in_chat(messages, "<s>tide<u> quay</u>", character) == place


def test_findings_are_those_that_the_old_template_has_not(setup: Setup) -> None:
    forth = setup.diff(STABLE, NEW_END, None)
    back = setup.diff(NEW_END, STABLE, None)

    assert [finding.rule for finding in forth.findings] == ["template-generation-tail"]
    assert not back.findings
    assert {answer.name for answer in forth.answers} == {answer.name for answer in back.answers}


def test_requests_that_only_the_old_template_renders(setup: Setup) -> None:
    refusing = "{% if messages | length > 3 %}{{ raise_exception('no') }}{% endif %}" + STABLE

    diff = setup.diff(STABLE, refusing)

    log = on_log(diff)
    assert log.refused_now == {"template-refused": 3}
    assert log.num_same == 3
    assert "template-change-refuses-requests" in {finding.rule for finding in diff.findings}
    assert on_log(setup.diff(refusing, STABLE)).rendered_now == {"template-refused": 3}


def test_lower_hit_rate_is_a_finding(setup: Setup) -> None:
    """A system text at the newest turn: conversations share nothing."""
    moving = STABLE.replace(
        "{%- for message in messages %}",
        "{%- for message in messages[1:] + messages[:1] %}",
    )

    diff = setup.diff(STABLE, moving)

    assert "template-change-lowers-hits" in {finding.rule for finding in diff.findings}


def test_raw_prompts_and_own_templates_are_unaffected(setup: Setup) -> None:
    own = {**CHATS[0], "chat_template": STABLE}
    raw = {"model": "m", "prompt": "A prompt as text, long enough for a block."}

    log = on_log(setup.diff(STABLE, NEW_START, [own, raw, raw, CHATS[3]]))

    assert log.num_unaffected == 3
    assert log.num_changed == 1
    assert log.num_prompt_tokens_kept > log.before.num_prompt_tokens / 2
    assert log.before.num_cached_tokens == log.after.num_cached_tokens > 0


def test_pool_of_no_block_holds_nothing(setup: Setup) -> None:
    log = on_log(setup.diff(STABLE, NEW_START, capacity_blocks=0))

    assert log.roll_out.num_resident_tokens == 0
    assert log.roll_out.useless_share is None


def test_small_pool_holds_the_most_recent_front(setup: Setup) -> None:
    """The last request served is the third; a pool of 2 blocks holds the first 2 of its prompt."""
    log = on_log(setup.diff(STABLE, NEW_START, capacity_blocks=2))

    assert log.roll_out.num_resident_tokens == 2 * BLOCK
    assert log.roll_out.useless_share == 1.0


def test_seconds_are_a_range(setup: Setup) -> None:
    """Prompts of some thousand tokens: below, reading the weights takes longer than computing."""
    long = body("The quay is long. " * 400, "Which berth is free?")
    lost = on_log(setup.diff(STABLE, NEW_START, [long] * 4, gpu="h100-sxm")).roll_out

    assert lost.lost_flops is not None
    assert lost.lost_flops > 0
    assert lost.lost_s is not None
    assert 0 < lost.lost_s[0] < lost.lost_s[1]


def test_log_needs_a_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "a.jinja"
    path.write_text(STABLE)
    source = load_source(path, None)

    with pytest.raises(UsageError, match="without a tokenizer"):
        diff_templates(source, source, deployment=load_deployment(None), log_paths=["log.jsonl"])


def test_deep_conversation_is_walked_once(setup: Setup) -> None:
    """Each request extends the one before it: visits are the nodes, not their square."""
    from prefixaudit.chain import TraceBuilder
    from prefixaudit.core.prompt import Prompt
    from prefixaudit.core.request import Request, Source, TokenIds
    from prefixaudit.core.unknown import UNKNOWN

    builder = TraceBuilder(block_size=1, cache_generated=False)
    for turn in range(300):
        ids = np.arange(turn + 1, dtype=np.uint32)
        request = Request(
            request_id=str(turn), source=Source("a", turn), prompt=TokenIds(token_ids=ids)
        )
        builder.add(
            Prompt(
                request=request,
                tokens=ids,
                num_prompt_tokens=len(ids),
                generated_token_ids=UNKNOWN,
            ),
            turn,
        )
    trace = builder.finish()
    spaces = np.zeros(300, dtype=np.int32)

    blocks = useless_blocks(
        trace,
        spaces,
        served=np.arange(200, dtype=np.int64),
        wanted=np.arange(150, dtype=np.int64),
        capacity_blocks=180,
    )

    # The pool has blocks 0 to 179 of the longest prompt; the wanted rows reach block 149.
    assert blocks == (180, 30)
