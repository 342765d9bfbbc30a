"""Questions about answers and tokens: begin tokens, the generation prompt, the round trip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from prefixaudit.templates import conversations as say
from prefixaudit.templates.conversations import Message
from prefixaudit.templates.faults import Reply, Seen, asked
from prefixaudit.templates.probing import Comparison, Prober, common_ids, common_prefix

GROUP: Final = "do answers and tokens survive?"
# Answers whose ends templates like to cut.
_SPACED: Final = ("\n\nBerth seven.", "  berth seven", "Berth seven.\n", "Berth seven.  ")


def token_questions(prober: Prober, opening: Sequence[Message]) -> Iterator[Seen]:
    """Yield the answers of this group."""
    for name, title, ask in (
        ("begin-tokens", "begins with two begin tokens", partial(_begin, prober, opening)),
        (
            "generation-prompt",
            "the generation prompt stays in the history",
            partial(_generation_prompt, prober, opening),
        ),
        (
            "answer-kept",
            "an answer stays as it was generated",
            partial(_kept, prober, opening, (say.ANSWERS[0],)),
        ),
        (
            "spaces-kept",
            "spaces at an answer's ends stay",
            partial(_kept, prober, opening, _SPACED),
        ),
        (
            "reasoning-stays",
            "an answer stays with its thought",
            partial(_thought_kept, prober, opening),
        ),
    ):
        yield asked((name, GROUP, title), ask)


def _begin(prober: Prober, opening: Sequence[Message]) -> Reply:
    text = prober.text([*opening, say.user(0)])
    begin = prober.source.files.special_tokens.get("bos_token")
    if prober.encoder is None:
        if not begin:
            return Reply(verdict="not-asked", about="no begin token is known")
        if text.startswith(begin + begin):
            return Reply(verdict="yes", rules=("template-double-bos",))
        return Reply(verdict="no", about="of the template's own")
    begin_id = None if not begin else prober.encoder.token_id(begin)
    if begin_id is None:
        return Reply(verdict="not-asked", about="the tokenizer has no begin token")
    plain, added = prober.ids(text), prober.ids(text, add_special_tokens=True)
    if plain[:2].tolist() == [begin_id, begin_id]:
        return Reply(verdict="yes", rules=("template-double-bos",))
    if added[:2].tolist() == [begin_id, begin_id]:
        return Reply(
            verdict="no",
            about="but the tokenizer adds one where special tokens are asked for",
            rules=("template-and-tokenizer-begin",),
        )
    return Reply(verdict="no")


def _generation_prompt(prober: Prober, opening: Sequence[Message]) -> Reply:
    chat = [*opening, say.user(0)]
    asking = prober.text(chat)
    found = prober.compare(asking, prober.text([*chat, say.assistant(0)], generate=False))
    if asking == prober.text(chat, generate=False):
        about = "there is none: the question's end asks"
    else:
        about = ""
    if not found.num_lost:
        return Reply(verdict="yes", about=about, compared=found)
    return Reply(verdict="no", about="its end is missing there", compared=found)


def _kept(prober: Prober, opening: Sequence[Message], answers: Sequence[str]) -> Reply:
    """Compare prompt and answer, as the cache has them, with the next prompt's beginning."""
    worst: tuple[Comparison, str] | None = None
    for answer in answers:
        chat = [*opening, say.user(0)]
        asking = prober.text(chat)
        after = prober.text([*chat, {"role": "assistant", "content": answer}, say.user(1)])
        if not after.startswith(asking):
            return Reply(verdict="not-asked", about="the generation prompt is lost already")
        header = _header(asking, answer, after)
        found = _cached(prober, asking, header + answer, after)
        if worst is None or found.num_lost > worst[0].num_lost:
            worst = found, header
    assert worst is not None
    found, header = worst
    if not found.num_lost:
        about = f"behind {len(header):,} characters of a header" if header.strip() else ""
        return Reply(verdict="yes", about=about, compared=found)
    is_seam = found.character == len(found.before)
    about = "other tokens at a seam" if is_seam else "its text is changed"
    return Reply(verdict="no", about=about, compared=found, rules=("template-changes-answers",))


def _thought_kept(prober: Prober, opening: Sequence[Message]) -> Reply:
    """Compare an answer behind its thought, as the template writes both, with the next prompt.

    What stands behind the answer (its closing token) isn't asked for.
    """
    chat = [*opening, say.user(0), say.assistant(0, thought=say.THOUGHTS[0])]
    answered = prober.text(chat, generate=False)
    if say.THOUGHTS[0] not in answered or say.ANSWERS[0] not in answered:
        return Reply(verdict="not-asked", about="thoughts of answers aren't written at all")
    answered = answered[: answered.rindex(say.ANSWERS[0]) + len(say.ANSWERS[0])]
    found = prober.compare(answered, prober.text([*chat, say.user(1)]))
    if not found.num_lost:
        return Reply(verdict="yes", compared=found)
    if say.THOUGHTS[0] in found.after:
        return Reply(verdict="no", about="it is written differently", compared=found)
    return Reply(
        verdict="no",
        about="the thought is left out",
        compared=found,
        rules=("template-drops-reasoning",),
    )


def _header(asking: str, answer: str, after: str) -> str:
    """Return what stands between prompt and answer: the model generates it (a channel's name)."""
    start = after.find(answer.strip(), len(asking))
    if start < 0:
        return ""
    space = answer[: len(answer) - len(answer.lstrip())]
    return after[len(asking) : start].removesuffix(space)


def _cached(prober: Prober, asking: str, generated: str, after: str) -> Comparison:
    """Return what of a prompt and what was generated behind it isn't in the next prompt.

    Its tokens are the encoding of its text alone: the model may have made others.
    """
    text = asking + generated
    character = common_prefix(text, after)
    if prober.encoder is None:
        num_kept, num_all = character, len(text)
    else:
        ids = np.concatenate([prober.ids(asking), prober.ids(generated)])
        num_kept, num_all = common_ids(ids, prober.ids(after)), len(ids)
    return Comparison(
        before=text,
        after=after,
        num_lost=num_all - num_kept,
        num_prompt=num_all,
        character=character,
    )
