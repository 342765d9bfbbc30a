"""What a question gives: an answer for the table, and the rules under which it is a fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prefixaudit.core.template import AnswerVerdict, TemplateAnswer
from prefixaudit.prompts import Refusal
from prefixaudit.templates.probing import Comparison

_REFUSALS = {
    "template-forbidden": "template-needs-forbidden",
    "template-error": "template-fails",
    "template-timeout": "template-fails",
    "template-too-large": "template-fails",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer without its question. `rules` name the faults that it shows."""

    verdict: AnswerVerdict
    about: str = ""
    compared: Comparison | None = None
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A question's answer, and the rules under which it is a fault."""

    answer: TemplateAnswer
    rules: tuple[str, ...]


def asked(
    question: tuple[str, str, str], ask: Callable[[], Reply], *, is_ordinary: bool = True
) -> Seen:
    """Ask one question: (name, group, title). A refusal is an answer too.

    Where the chat is an ordinary one, failing on it is a fault; refusing it by raise_exception
    never is, for clients are told.
    """
    name, group, title = question
    try:
        reply = ask()
    except Refusal as refusal:
        rule = _REFUSALS.get(refusal.kind)
        if rule == "template-fails" and not is_ordinary:
            rule = None
        reply = Reply(
            verdict="refused",
            about=refusal.reason.removeprefix("the chat template, "),
            rules=() if rule is None else (rule,),
        )
    compared = reply.compared
    answer = TemplateAnswer(
        name=name,
        group=group,
        question=title,
        verdict=reply.verdict,
        about=reply.about,
        num_lost=None if compared is None else compared.num_lost,
        num_prompt=None if compared is None else compared.num_prompt,
        shown=None if compared is None else compared.shown,
    )
    return Seen(answer=answer, rules=reply.rules)
