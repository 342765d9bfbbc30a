"""Renders chat templates as the server does: transformers' own renderer, in its own sandbox.

The renderer's code and its sandbox are transformers'; three things are bound to ours. The clock
(`strftime_now`) shows the request's arrival, never today. Random choices are refused, because
their result can't be replayed. And work is bounded: time, output, and the operations that can
take endless time or memory in one step. Errors carry the template's line and no prompt text.
"""

from __future__ import annotations

import datetime
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from prefixaudit.errors import IncompleteError
from prefixaudit.prompts.content_format import NEWEST_VLLM, Guess, guesses_for_parts
from prefixaudit.prompts.limits import Limits, TooMuch
from prefixaudit.prompts.refusal import Refusal
from prefixaudit.prompts.template_syntax import TemplateSyntax, syntax_of
from prefixaudit.prompts.watchdog import OutOfTime, time_limit

if TYPE_CHECKING:
    from jinja2 import Environment, Template

_MAX_TEMPLATES = 64
# Chats in a row for which a template may run out of time or room.
_MAX_EXHAUSTED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateFacts:
    """What the syntax tree of a template says.

    reads_clock    it names `strftime_now`
    uses_random    it chooses at random, so no rendering can be replayed
    part_guesses   which servers' guesses take it for one that walks through parts of contents
    names_developer  it names the role `developer`
    """

    reads_clock: bool
    uses_random: bool
    part_guesses: frozenset[Guess]
    names_developer: bool

    @property
    def reads_parts(self) -> bool:
        """Say whether it walks through the parts of a message's content, as newest vLLM sees it."""
        return NEWEST_VLLM in self.part_guesses


class _ClockUnknown(BaseException):
    """The template asks for the time of a request whose arrival isn't known."""


class TemplateRenderer:
    """Renders chats with transformers' renderer.

    `time_zone` is the server's, for templates that print the date. `time_limit_s` (CPU seconds)
    and `max_characters` bound one rendering.
    """

    def __init__(
        self,
        *,
        time_zone: datetime.tzinfo = datetime.UTC,
        time_limit_s: float = 5.0,
        max_characters: int = 64 << 20,
    ) -> None:
        self._time_zone = time_zone
        self._time_limit_s = time_limit_s
        self._limits = Limits(max_characters)
        self._arrival_s: float | None = None
        self._clock_was_read = False
        self._templates: OrderedDict[str, Template | Refusal] = OrderedDict()
        self._facts: dict[str, TemplateFacts] = {}
        self._exhausted: dict[str, list[Refusal]] = {}
        self._render, self._render_copies, self._new_environment = _transformers_renderers(
            self._compiled
        )

    @property
    def clock_was_read(self) -> bool:
        """Say whether the last rendering asked for the time."""
        return self._clock_was_read

    def check(self, template: str) -> None:
        """Raise Refusal, with the line, if the template isn't valid."""
        self._compiled(template)

    def facts(self, template: str) -> TemplateFacts:
        """Return what the template's syntax tree says. Raises Refusal if it isn't valid."""
        if template not in self._facts:
            compiled = self._compiled(template)
            if len(self._facts) >= _MAX_TEMPLATES:
                self._facts.clear()
            with time_limit(self._time_limit_s):
                self._facts[template] = _facts_of(compiled.environment, template)
        return self._facts[template]

    def syntax(self, template: str) -> TemplateSyntax:
        """Return what could make prompts unstable in a template. Raises Refusal if not valid."""
        compiled = self._compiled(template)
        with time_limit(self._time_limit_s):
            return syntax_of(compiled.environment, template)

    def render(
        self,
        template: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None,
        documents: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        continue_final_message: bool | str,
        arrival_s: float | None,
        variables: Mapping[str, Any],
    ) -> str:
        """Return the prompt's text. Raises Refusal with the kind, the reason and the line.

        Messages, tools and documents have to be decoded JSON, nothing else; they aren't changed.
        `arrival_s` (Unix time, seconds) is what the clock shows; None makes asking it a refusal.
        A template that ran out of time or room for a few chats in a row isn't tried again.
        """
        self._arrival_s = arrival_s
        self._clock_was_read = False
        if self.facts(template).uses_random:
            raise Refusal(
                "template-random", "the chat template chooses at random: it can't be replayed"
            )
        exhausted = self._exhausted.get(template, [])
        if len(exhausted) >= _MAX_EXHAUSTED:
            last = exhausted[-1]
            raise Refusal(last.kind, f"{last.reason}, {len(exhausted)} times: it isn't tried again")
        # To continue the final message, transformers marks its end in a copy of the messages.
        render = self._render_copies if continue_final_message else self._render
        try:
            with time_limit(self._time_limit_s):
                rendered, _ = render(
                    [list(messages)],
                    tools=None if tools is None else list(tools),
                    documents=None if documents is None else list(documents),
                    chat_template=template,
                    continue_final_message=continue_final_message,
                    add_generation_prompt=add_generation_prompt,
                    **variables,
                )
        except Refusal:
            raise
        except (Exception, OutOfTime, TooMuch, _ClockUnknown) as error:
            refusal = self._refusal(error)
            if refusal.kind in ("template-timeout", "template-too-large"):
                self._exhausted.setdefault(template, []).append(refusal)
            raise refusal from None
        self._exhausted.pop(template, None)
        text: str = rendered[0]
        return text

    # --- the template's environment

    def _compiled(self, source: str) -> Template:
        found = self._templates.get(source)
        if found is None:
            try:
                with time_limit(self._time_limit_s):
                    found = self._compile(source)
            except (Exception, OutOfTime, TooMuch) as error:
                found = self._refusal(error)
            self._templates[source] = found
            if len(self._templates) > _MAX_TEMPLATES:
                self._templates.popitem(last=False)
        if isinstance(found, Refusal):
            raise Refusal(found.kind, found.reason)
        return found

    def _compile(self, source: str) -> Template:
        environment: Any = self._new_environment()
        environment.globals["strftime_now"] = self._strftime_now
        environment.globals.pop("lipsum", None)
        self._limits.bind_environment(environment)
        template: Template = environment.from_string(source)
        self._limits.bind_template(template)
        return template

    def _strftime_now(self, layout: str) -> str:
        self._clock_was_read = True
        if self._arrival_s is None:
            raise _ClockUnknown
        arrival = datetime.datetime.fromtimestamp(self._arrival_s, self._time_zone)
        # Servers call datetime.now(), which has no zone: %z and %Z print nothing.
        return arrival.replace(tzinfo=None).strftime(layout)

    # --- errors

    def _refusal(self, error: BaseException) -> Refusal:
        from jinja2 import TemplateError, TemplateSyntaxError
        from jinja2.exceptions import SecurityError, TemplateRuntimeError

        line = error.lineno if isinstance(error, TemplateSyntaxError) else _line_of(error)
        place = "the chat template" if line is None else f"the chat template, line {line},"
        if isinstance(error, OutOfTime):
            return Refusal("template-timeout", f"{place} runs longer than {self._time_limit_s:g} s")
        if isinstance(error, (TooMuch, MemoryError)):
            return Refusal(
                "template-too-large",
                f"{place} builds more than {self._limits.max_characters:,} characters",
            )
        if isinstance(error, _ClockUnknown):
            return Refusal(
                "unknown-clock", f"{place} asks for the date, and the arrival time isn't recorded"
            )
        if isinstance(error, SecurityError):
            return Refusal("template-forbidden", f"{place} does what the sandbox forbids")
        if isinstance(error, TemplateSyntaxError):
            return Refusal("template-error", f"{place} isn't valid Jinja")
        if type(error) is TemplateError:  # raise_exception(), whose message may hold the prompt
            return Refusal("template-refused", f"{place} refuses this chat (raise_exception)")
        kind = type(error).__name__
        if isinstance(error, TemplateRuntimeError):
            return Refusal("template-error", f"{place} can't render this chat: {kind}")
        if line is None:
            return Refusal("template-error", f"this chat can't be rendered: {kind}")
        return Refusal("template-error", f"{place} fails on this chat: {kind}")


_Render: TypeAlias = Callable[..., tuple[list[str], Any]]


def _transformers_renderers(
    compiled: Callable[[str], Template],
) -> tuple[_Render, _Render, Callable[[], Environment]]:
    """Return transformers' renderer, the same with copies of its input, and a maker of sandboxes.

    The function's code stays transformers' own; the name that it looks its compiler up by is bound
    to `compiled`, in a copy of its module's names. The first renderer doesn't rebuild its input
    out of plain types either: decoded JSON is nothing else, and the sandbox can't change it.
    """
    import os

    # It says on stderr that PyTorch is missing, which is meant.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers.utils import chat_template_utils as module

    try:
        original = module.render_jinja_template
        new_template = module._cached_compile_jinja_template
        copying = {**vars(module), "_compile_jinja_template": compiled}
        module._plain_template_data  # noqa: B018 - fail here if the step has another name
        new_template("")
    except AttributeError as error:
        raise IncompleteError(
            f"this version of transformers can't render templates for replay: {error}",
            hint="transformers 5.24 is known to work",
        ) from None

    def bound(names: dict[str, Any]) -> _Render:
        render = types.FunctionType(
            original.__code__, names, argdefs=original.__defaults__, closure=original.__closure__
        )
        render.__kwdefaults__ = original.__kwdefaults__
        return render

    sparing = {**copying, "_plain_template_data": lambda data: data}
    return bound(sparing), bound(copying), lambda: new_template("").environment


def _line_of(error: BaseException) -> int | None:
    """Return the line of the template where an error was raised, the innermost one."""
    line = None
    step = error.__traceback__
    while step is not None:
        names = step.tb_frame.f_globals
        if "__jinja_exception__" in names:  # jinja has rewritten the frame
            line = step.tb_lineno
        elif (template := names.get("__jinja_template__")) is not None:
            line = template.get_corresponding_lineno(step.tb_lineno)
        step = step.tb_next
    return line


def _facts_of(environment: Environment, source: str) -> TemplateFacts:
    from jinja2 import nodes

    tree = environment.parse(source)
    names = {node.name for node in tree.find_all(nodes.Name)}
    filters = {node.name for node in tree.find_all(nodes.Filter)}
    return TemplateFacts(
        reads_clock="strftime_now" in names,
        uses_random="random" in filters or "lipsum" in names,
        part_guesses=guesses_for_parts(tree, source),
        names_developer='"developer"' in source or "'developer'" in source,
    )
