"""Questions about conversations that go on: is a prompt a prefix of the next one, and if not, why.

A loss has one of these places, found by what the two texts hold where they part:

system, tools      text that stands behind the difference in both: it moves with the newest turn
reasoning          a thought, or its tags, that the later prompt doesn't hold any more
generation-prompt  only the end of the earlier prompt, which asked for the answer
fixed-text         text of the template that stands behind the difference in both
message-end        only what stands behind the last message's text
history            anything else
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from prefixaudit.prompts import Refusal
from prefixaudit.templates import conversations as say
from prefixaudit.templates.conversations import Chat, Message
from prefixaudit.templates.faults import Reply, Seen, asked
from prefixaudit.templates.probing import Comparison, Prober, common_prefix

Place: TypeAlias = Literal[
    "system",
    "tools",
    "reasoning",
    "generation-prompt",
    "fixed-text",
    "message-end",
    "history",
]

GROUP: Final = "is each prompt the beginning of the next one?"
_RULES: Final[dict[Place, str]] = {
    "generation-prompt": "template-generation-tail",
    "reasoning": "template-drops-reasoning",
    "system": "template-moves-system-text",
    "tools": "template-moves-tools",
    "fixed-text": "template-moves-fixed-text",
    "message-end": "template-generation-tail",
    "history": "template-rewrites-history",
}
_ABOUT: Final[dict[Place, str]] = {
    "generation-prompt": "only the generation prompt's end",
    "reasoning": "earlier thoughts are left out of the history",
    "system": "the system text moves to a newer turn",
    "tools": "the tools move to a newer turn",
    "fixed-text": "a text of the template moves to a newer turn",
    "message-end": "only what stands behind the last message's text",
    "history": "an earlier message is written differently",
}
_LONG_TURNS: Final = 12
# Enough of a text to be no header of a turn; and how far from a difference a thought's tag stands.
_MOVED_CHARACTERS: Final = 48
_TAG_CHARACTERS: Final = 16
_THOUGHT_TAG: Final = re.compile(r"(?i)think|thought|analysis")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Two prompts of one conversation, the second one further on."""

    before: Chat
    after: Chat
    tools: Sequence[Any] | None = None
    variables: dict[str, Any] | None = None


def growth_questions(prober: Prober, opening: Sequence[Message]) -> Iterator[Seen]:
    """Yield the answers of this group; `opening` is the system message, if the template takes one.

    A question's verdict is `yes` where nothing is lost.
    """
    as_text = takes_arguments_as_text(prober, opening)
    for name, title, steps in _questions([*opening, say.user(0)], as_text=as_text):
        # Images are refused by templates for text, and that is fine.
        yield asked(
            (name, GROUP, title), partial(_grown, prober, steps), is_ordinary="image" not in name
        )
    yield asked(
        ("long-history", GROUP, f"a history of {_LONG_TURNS} turns"),
        partial(_long, prober, opening),
    )


def _questions(plain: Chat, *, as_text: bool) -> Iterator[tuple[str, str, list[Step]]]:
    """Yield name, title and steps; `plain` is a first question with its opening."""
    turn = [*plain, say.assistant(0), say.user(1)]
    two_turns = [*turn, say.assistant(1), say.user(2)]
    plain_steps = [Step(before=plain, after=turn), Step(before=turn, after=two_turns)]
    yield "plain-turns", "plain turns", plain_steps
    with_tools = [replace(step, tools=say.TOOLS) for step in plain_steps]
    yield "turns-with-tools", "plain turns, tools given", with_tools
    yield from _loops(plain, (None, None), as_text=as_text)
    yield from _loops(plain, say.THOUGHTS, as_text=as_text)
    thought = [*plain, say.assistant(0, thought=say.THOUGHTS[0]), say.user(1)]
    thought_twice = [*thought, say.assistant(1, thought=say.THOUGHTS[1]), say.user(2)]
    steps = [Step(before=plain, after=thought), Step(before=thought, after=thought_twice)]
    yield "turns-with-reasoning", "turns with reasoning", steps
    off = {"enable_thinking": False}
    yield (
        "thinking-off",
        "plain turns, enable_thinking=false",
        [replace(step, variables=off) for step in plain_steps],
    )
    image = [*plain[:-1], say.with_image(plain[-1])]
    steps = [Step(before=image, after=[*image, *turn[len(plain) :]])]
    yield "turns-with-image", "turns with an image", steps


def _loops(
    plain: Chat, thoughts: Sequence[str | None], *, as_text: bool
) -> Iterator[tuple[str, str, list[Step]]]:
    calls = [
        say.tool_call(arguments_as_text=as_text, thought=thought, number=number)
        for number, thought in enumerate(thoughts)
    ]
    loop = [*plain, calls[0], say.tool_result()]
    longer = [*loop, calls[1], say.tool_result(1)]
    closed = [*loop, say.assistant(0, thought=thoughts[1]), say.user(1)]
    name, title = ("-with-reasoning", ", with reasoning") if thoughts[0] else ("", "")
    yield (
        f"inside-tool-loop{name}",
        f"inside a tool loop{title}",
        [Step(before=loop, after=longer, tools=say.TOOLS)],
    )
    yield (
        f"after-tool-loop{name}",
        f"a new turn after a tool loop{title}",
        [Step(before=loop, after=closed, tools=say.TOOLS)],
    )


def takes_arguments_as_text(prober: Prober, opening: Sequence[Message]) -> bool:
    """Say whether calls have to be given with their arguments as text: as an object they fail."""
    for as_text in (False, True):
        call = say.tool_call(arguments_as_text=as_text)
        try:
            prober.text([*opening, say.user(0), call, say.tool_result()], tools=say.TOOLS)
        except Refusal:
            continue
        return as_text
    return False


def _grown(prober: Prober, steps: Sequence[Step]) -> Reply:
    """Return the answer of the step that loses most."""
    worst: tuple[Comparison, Step] | None = None
    for step in steps:
        found = _compared(prober, step)
        if worst is None or found.num_lost > worst[0].num_lost:
            worst = found, step
    assert worst is not None
    return _answer(prober, *worst)


def _compared(prober: Prober, step: Step) -> Comparison:
    return prober.compare(_text(prober, step, step.before), _text(prober, step, step.after))


def _text(prober: Prober, step: Step, chat: Chat, *, generate: bool = True) -> str:
    return prober.text(chat, tools=step.tools, generate=generate, variables=step.variables)


def _answer(prober: Prober, found: Comparison, step: Step) -> Reply:
    if not found.num_lost:
        return Reply(verdict="yes", compared=found)
    place = place_of(prober, found, step)
    if place == "system" and _moves(found, say.TOOL_MARKERS[0]):
        return Reply(
            verdict="no",
            about="system text and tools move to a newer turn",
            compared=found,
            rules=(_RULES["system"], _RULES["tools"]),
        )
    return Reply(verdict="no", about=_ABOUT[place], compared=found, rules=(_RULES[place],))


def place_of(prober: Prober, found: Comparison, step: Step) -> Place:
    """Say what stands where two prompts part."""
    before, after, character = found.before, found.after, found.character
    if _moves(found, say.SYSTEM):
        return "system"
    if _moves(found, say.TOOL_MARKERS[0]):
        return "tools"
    if any(thought in before and thought not in after for thought in say.THOUGHTS):
        return "reasoning"
    try:
        bare = _text(prober, step, step.before, generate=False)
    except Refusal:
        bare = before
    # A template may close the conversation where it asks for no answer: what that rendering shares
    # with the prompt is history.
    if bare != before and character >= common_prefix(before, bare):
        return "generation-prompt"
    if _THOUGHT_TAG.search(_around(before, character)) and not _THOUGHT_TAG.search(
        _around(after, character)
    ):
        last = before.rfind(_last_text(step.before))
        return "reasoning" if character < last else "message-end"
    if _moves_fixed_text(found, step):
        return "fixed-text"
    text = _last_text(step.before)
    if text in before and character >= before.rfind(text) + len(text):
        return "message-end"
    return "history"


def _moves_fixed_text(found: Comparison, step: Step) -> bool:
    """Say whether what stands at the difference stands behind a newer message in the later one."""
    chunk = found.before[found.character : found.character + _MOVED_CHARACTERS]
    place = found.after.find(chunk, found.character)
    if len(chunk) < _MOVED_CHARACTERS or place < 0:
        return False
    passed = found.after[found.character : place]
    newer = [
        _last_text(step.after[: number + 1]) for number in range(len(step.before), len(step.after))
    ]
    return any(text and text in passed for text in newer)


def _around(text: str, character: int) -> str:
    return text[max(0, character - _TAG_CHARACTERS) : character + _TAG_CHARACTERS]


def _last_text(chat: Chat) -> str:
    if chat[-1]["role"] == "tool":
        return say.TOOL_RESULT_WORD  # templates may write the result as JSON again
    content = chat[-1]["content"]
    if isinstance(content, str):
        return content
    return str(content[-1]["text"])


def _moves(found: Comparison, marker: str) -> bool:
    """Say whether a text stands behind the difference in both prompts."""
    ends = [text.find(marker) + len(marker) for text in (found.before, found.after)]
    return marker in found.before and marker in found.after and min(ends) > found.character


def _long(prober: Prober, opening: Sequence[Message]) -> Reply:
    """Compare each prompt of a long conversation with the next one."""
    whole = [*opening, *say.long_history(_LONG_TURNS)]
    first = len(opening) + 1
    chats = [whole[: first + 2 * turn] for turn in range(_LONG_TURNS + 1)]
    steps = [Step(before=before, after=after) for before, after in itertools.pairwise(chats)]
    losses = [_compared(prober, step) for step in steps]
    worst = max(range(len(steps)), key=lambda turn: losses[turn].num_lost)
    # The middle and the end of the conversation: a loss that follows its length doubles.
    middle, last = losses[len(losses) // 2 - 1], losses[-1]
    per_turn = (last.num_prompt - middle.num_prompt) / (len(losses) - len(losses) // 2)
    if last.num_lost > middle.num_lost + 2 * per_turn:
        return Reply(
            verdict="no",
            about="what is lost grows with the conversation",
            compared=last,
            rules=("template-loses-more-each-turn",),
        )
    return _answer(prober, losses[worst], steps[worst])
