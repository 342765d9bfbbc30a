"""Questions about what reaches the model: roles, thoughts, tools, parts, and forms of a message.

The forms that servers may change before rendering (null content, arguments, parts) are asked as
they reach a template that nobody prepares messages for; a fault is only what the rules of the
server in use leave of it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from prefixaudit.prompts import Refusal, ServerRules
from prefixaudit.templates import conversations as say
from prefixaudit.templates.conversations import Chat, Message
from prefixaudit.templates.faults import Reply, Seen, asked
from prefixaudit.templates.probing import Prober

SEEN: Final = "what does the model see?"
FORMS: Final = "does the form of a message matter?"
_RAW: Final = ServerRules(null_content="keep", tool_arguments="as-sent", content_parts="as-sent")


def sight_questions(prober: Prober, opening: Sequence[Message], *, as_text: bool) -> Iterator[Seen]:
    """Yield the answers of both groups; `as_text`: calls need their arguments as text."""
    loop = partial(_loop, opening, as_text=as_text)
    for name, title, ask in (
        ("tool-definitions", "tool definitions", partial(_tools, prober, opening)),
        ("tool-results", "results of tools", partial(_results, prober, loop())),
        ("reasoning-kept", "reasoning of earlier turns", partial(_reasoning, prober, opening)),
        ("think-text-kept", "thoughts inside content", partial(_think, prober, opening)),
    ):
        yield asked((name, SEEN, title), ask)
    for name, title, ask in (
        ("system-role", "a system message", partial(_role, prober, "system")),
        ("developer-role", "a developer message", partial(_role, prober, "developer")),
        ("parts", "content in parts", partial(_parts, prober, opening)),
        ("images", "images", partial(_images, prober, opening)),
    ):
        yield asked((name, SEEN, title), ask, is_ordinary=False)
    for name, title, ask in (
        ("null-content", "null content differs from an empty text", partial(_null, prober, loop)),
        ("absent-content", "no content differs from an empty text", partial(_absent, prober, loop)),
        (
            "argument-form",
            "arguments as text or object differ",
            partial(_arguments, prober, opening),
        ),
        (
            "argument-spelling",
            "the spelling of arguments matters",
            partial(_spelling, prober, opening),
        ),
    ):
        yield asked((name, FORMS, title), ask, is_ordinary=False)


def _role(prober: Prober, role: str) -> Reply:
    text = say.SYSTEM if role == "system" else say.DEVELOPER
    prompt = prober.text([{"role": role, "content": text}, say.user(0)])
    if text in prompt:
        return Reply(verdict="yes")
    rule = "template-drops-message" if role == "system" else "template-drops-developer"
    return Reply(verdict="no", about="left out, without an error", rules=(rule,))


def _tools(prober: Prober, opening: Sequence[Message]) -> Reply:
    prompt = prober.text([*opening, say.user(0)], tools=say.TOOLS)
    if all(tool["function"]["name"] in prompt for tool in say.TOOLS):
        return Reply(verdict="yes")
    return Reply(verdict="no", about="not in the prompt", rules=("template-ignores-tools",))


def _results(prober: Prober, loop: Chat) -> Reply:
    prompt = prober.text(loop, tools=say.TOOLS)
    # Templates may write the result as JSON again, so its values are looked for.
    if say.TOOL_RESULT_WORD in prompt:
        return Reply(verdict="yes")
    return Reply(
        verdict="no", about="left out, without an error", rules=("template-drops-message",)
    )


def _loop(opening: Sequence[Message], *, as_text: bool, content: str | None = "") -> Chat:
    call = say.tool_call(arguments_as_text=as_text, content=content)
    return [*opening, say.user(0), call, say.tool_result()]


def _reasoning(prober: Prober, opening: Sequence[Message]) -> Reply:
    thought = say.THOUGHTS[0]
    chat = [*opening, say.user(0), say.assistant(0, thought=thought), say.user(1)]
    if thought in prober.text(chat):
        return Reply(verdict="yes")
    return Reply(verdict="no", about="left out of the history")


def _think(prober: Prober, opening: Sequence[Message]) -> Reply:
    thought = say.THOUGHTS[0]
    content = f"<think>\n{thought}\n</think>\n\n{say.ANSWERS[0]}"
    answer = {"role": "assistant", "content": content}
    prompt = prober.text([*opening, say.user(0), answer, say.user(1)])
    if say.ANSWERS[0] not in prompt:
        return Reply(
            verdict="no", about="the answer is left out too", rules=("template-drops-message",)
        )
    if thought in prompt:
        return Reply(verdict="yes")
    return Reply(verdict="no", about="cut out of the answer", rules=("template-drops-reasoning",))


def _parts(prober: Prober, opening: Sequence[Message]) -> Reply:
    chat = [*opening, say.as_parts(say.user(0))]
    # What the server in use makes of it decides; a template fails only without its help.
    rules = () if _shows_parts(prober, chat, prober.rules) else ("template-drops-parts",)
    try:
        prompt = prober.text(chat, rules=_RAW)
    except Refusal as refusal:
        return Reply(verdict="refused", about=_line(refusal), rules=rules)
    if _has_parts(prompt):
        return Reply(verdict="yes")
    about = "printed as a list" if _words(prompt) else "left out, without an error"
    return Reply(verdict="no", about=about, rules=rules)


def _shows_parts(prober: Prober, chat: Chat, rules: ServerRules) -> bool:
    try:
        return _has_parts(prober.text(chat, rules=rules))
    except Refusal:
        return True  # a loud error: the row says so


def _words(prompt: str) -> bool:
    parts = say.as_parts(say.user(0))["content"]
    return all(part["text"].strip() in prompt for part in parts)


def _has_parts(prompt: str) -> bool:
    return _words(prompt) and "'type'" not in prompt and '"type"' not in prompt


def _images(prober: Prober, opening: Sequence[Message]) -> Reply:
    prompt = prober.text([*opening, say.with_image(say.user(0))])
    if prompt != prober.text([*opening, say.user(0)]):
        return Reply(verdict="yes")
    return Reply(verdict="no", about="the image leaves no mark in the prompt")


def _null(prober: Prober, loop: Callable[..., Chat]) -> Reply:
    def prompt(content: str | None, rules: ServerRules) -> str:
        return prober.text(loop(content=content), tools=say.TOOLS, rules=rules)

    null, empty = prompt(None, _RAW), prompt("", _RAW)
    if null == empty:
        return Reply(verdict="no")
    prints = null.count("None") > empty.count("None")
    try:
        under_rules = prompt(None, prober.rules)
    except Refusal:
        under_rules = empty
    still_prints = under_rules.count("None") > empty.count("None")
    return Reply(
        verdict="yes",
        about="null is printed as the word None" if prints else "null is written otherwise",
        compared=prober.compare(null, empty),
        rules=("template-prints-none",) if still_prints else (),
    )


def _absent(prober: Prober, loop: Callable[..., Chat]) -> Reply:
    empty = loop()
    absent = [
        {name: value for name, value in message.items() if name != "content" or value}
        for message in empty
    ]
    prompts = [prober.text(chat, tools=say.TOOLS, rules=_RAW) for chat in (absent, empty)]
    found = prober.compare(*prompts)
    if found.before == found.after:
        return Reply(verdict="no")
    return Reply(verdict="yes", about="no content is written otherwise", compared=found)


def _arguments(prober: Prober, opening: Sequence[Message]) -> Reply:
    prompts: list[str | None] = []
    reasons: list[Refusal] = []
    for as_text in (False, True):
        try:
            chat = _loop(opening, as_text=as_text)
            prompts.append(prober.text(chat, tools=say.TOOLS, rules=_RAW))
        except Refusal as refusal:
            reasons.append(refusal)
            prompts.append(None)
    as_object, text = prompts
    if as_object is None and text is None:
        raise reasons[0]
    if as_object is None or text is None:
        which = "an object" if as_object is None else "text"
        return Reply(verdict="yes", about=f"it fails on arguments as {which}")
    if as_object == text:
        return Reply(verdict="no")
    return Reply(
        verdict="yes",
        about="the same call is written in two ways",
        compared=prober.compare(as_object, text),
    )


def _spelling(prober: Prober, opening: Sequence[Message]) -> Reply:
    """Compare two texts of the same arguments, as the server in use hands them on."""
    spaced = _loop(opening, as_text=True)
    call = copy.deepcopy(dict(spaced[-2]))
    call["tool_calls"][0]["function"]["arguments"] = say.COMPACT_ARGUMENTS
    compact = [*spaced[:-2], call, spaced[-1]]
    found = prober.compare(
        prober.text(spaced, tools=say.TOOLS), prober.text(compact, tools=say.TOOLS)
    )
    if found.before == found.after:
        return Reply(verdict="no")
    return Reply(verdict="yes", about="clients have to keep what the model wrote", compared=found)


def _line(refusal: Any) -> str:
    return str(refusal.reason).removeprefix("the chat template, ")
