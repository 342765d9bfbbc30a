"""Questions about different conversations: what they share, and what a switch changes for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from prefixaudit.prompts import Refusal
from prefixaudit.templates import conversations as say
from prefixaudit.templates.conversations import Message
from prefixaudit.templates.faults import Reply, Seen, asked
from prefixaudit.templates.probing import NOON_S, Comparison, Prober

GROUP: Final = "what do different conversations share?"

# What is waited between two renderings, and how the smallest wait that changes a prompt is told.
_WAITS_S: Final = (
    (1, "each second"),
    (60, "each minute"),
    (3600, "each hour"),
    (86400, "each day"),
    (40 * 86400, "each month"),
    (400 * 86400, "each year"),
)
_DAYS: Final = ("each day", "each month", "each year")


def sharing_questions(prober: Prober, opening: Sequence[Message]) -> Iterator[Seen]:
    """Yield the answers of this group."""

    def title(name: str, text: str) -> tuple[str, str, str]:
        return name, GROUP, text

    yield asked(title("clock", "prints the time"), partial(_clock, prober, opening))
    if opening:
        yield asked(
            title("shared-system-text", "the system text is shared"),
            partial(_shared_system_text, prober, opening),
        )
    yield asked(
        title("shared-tools", "the tool definitions are shared"),
        partial(_shared_tools, prober, opening),
    )
    yield asked(
        title("tool-order", "the order of tools changes the prompt"),
        partial(_tools_changed, prober, opening, say.TOOLS[::-1]),
    )
    yield asked(
        title("schema-key-order", "the order of schema keys changes the prompt"),
        partial(
            _tools_changed,
            prober,
            opening,
            [say.reordered_keys(tool) for tool in say.TOOLS],
        ),
    )
    yield asked(
        title("thinking-switch", "enable_thinking changes the prompt"),
        partial(_thinking_switch, prober, opening),
    )


def _clock(prober: Prober, opening: Sequence[Message]) -> Reply:
    """Render later and later, until a prompt changes."""
    # Many templates print the date in a system text of their own; tools may have a template too.
    forms: list[tuple[str, list[Message], Sequence[Any] | None]] = [
        ("", [*opening, say.user(0)], None),
        (" where the client sends no system message", [say.user(0)], None),
        (" with tools", [*opening, say.user(0)], say.TOOLS),
    ]
    refusals: list[Refusal] = []
    for where, chat, tools in forms:
        try:
            period, found = _period(prober, chat, tools)
        except Refusal as refusal:
            refusals.append(refusal)
            continue
        if found is not None:
            is_day = period in _DAYS
            return Reply(
                verdict="yes",
                about=f"the prompt changes {period}{where}",
                compared=found,
                rules=("template-clock-each-day" if is_day else "template-clock-each-second",),
            )
    if len(refusals) == len(forms):
        raise refusals[0]
    templates = prober.source.files.templates.values()
    if any(prober.renderer.facts(template).reads_clock for template in templates):
        return Reply(verdict="no", about="it could, but not in these chats")
    return Reply(verdict="no")


def _period(
    prober: Prober, chat: Sequence[Message], tools: Sequence[Any] | None
) -> tuple[str, Comparison | None]:
    before = prober.text(chat, tools=tools)
    for wait_s, period in _WAITS_S:
        after = prober.text(chat, tools=tools, arrival_s=NOON_S + wait_s)
        found = prober.compare(before, after)
        if found.num_lost:
            return period, found
    return "", None


def _shared_system_text(prober: Prober, opening: Sequence[Message]) -> Reply:
    """Compare two conversations at their second turns; only the system text is equal."""
    first = prober.text([*opening, say.user(0), say.assistant(0), say.user(1)])
    second = prober.text([*opening, say.user(2), say.assistant(2), say.user(0)])
    if say.SYSTEM not in first:
        return Reply(verdict="not-asked", about="the system text isn't in the prompt")
    found = prober.compare(first, second)
    if found.character >= first.index(say.SYSTEM) + len(say.SYSTEM):
        return Reply(verdict="yes")
    return Reply(
        verdict="no",
        about="it stands behind the first difference",
        rules=("template-hides-system-text",),
    )


def _shared_tools(prober: Prober, opening: Sequence[Message]) -> Reply:
    def second_turn(numbers: tuple[int, int, int]) -> str:
        first, answer, second = numbers
        chat = [*opening, say.user(first), say.assistant(answer), say.user(second)]
        return prober.text(chat, tools=say.TOOLS)

    first, second = second_turn((0, 0, 1)), second_turn((2, 2, 0))
    last = say.TOOL_MARKERS[1]
    if last not in first:
        return Reply(verdict="not-asked", about="the tools aren't in the prompt")
    found = prober.compare(first, second)
    shares = found.character >= first.index(last) + len(last)
    return Reply(
        verdict="yes" if shares else "no",
        about="" if shares else "they stand behind the first difference",
    )


def _tools_changed(prober: Prober, opening: Sequence[Message], tools: Sequence[Any]) -> Reply:
    chat = [*opening, say.user(0)]
    before = prober.text(chat, tools=say.TOOLS)
    after = prober.text(chat, tools=tools)
    if before == after:
        about = "" if say.TOOL_MARKERS[0] in before else "the tools aren't in the prompt"
        return Reply(verdict="no", about=about)
    found = prober.compare(before, after)
    return Reply(verdict="yes", about="clients have to keep it", compared=found)


def _thinking_switch(prober: Prober, opening: Sequence[Message]) -> Reply:
    chat = [*opening, say.user(0)]
    on = prober.text(chat, variables={"enable_thinking": True})
    off = prober.text(chat, variables={"enable_thinking": False})
    if on == off:
        return Reply(verdict="no")
    found = prober.compare(on, off)
    return _switched(prober, found)


def _switched(prober: Prober, found: Comparison) -> Reply:
    question = found.before.find(say.QUESTIONS[0])
    if 0 <= question < found.character:
        return Reply(verdict="yes", about="at its end only", compared=found)
    return Reply(
        verdict="yes",
        about="before the first question",
        compared=found,
        rules=("template-thinking-changes-start",),
    )
