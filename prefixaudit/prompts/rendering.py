"""From a prompt as it was sent to the text that is tokenized.

A chat is rendered with its template: the request's own, the one given, or the model folder's. The
names that a server sets itself win over those of `chat_template_kwargs`, or are refused.
"""

from __future__ import annotations

import datetime
import time
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prefixaudit.core.request import ChatMessages, PromptInput, RawText
from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.errors import ConfigurationError
from prefixaudit.prompts.image_rules import ImageRule, image_rule
from prefixaudit.prompts.media import Medium, media_of
from prefixaudit.prompts.model_folder import PromptFiles, read_prompt_files
from prefixaudit.prompts.options import ReplayOptions
from prefixaudit.prompts.preparing import PreparedChat, prepare_chat
from prefixaudit.prompts.refusal import Refusal
from prefixaudit.prompts.templates import TemplateRenderer

# Names that the renderer and the server set themselves; in chat_template_kwargs the first four
# win, as in vLLM, the second are refused, and the third have no effect.
_OVERRIDES = ("tools", "documents", "add_generation_prompt", "continue_final_message")
_REFUSED = ("messages", "conversations", "chat_template", "return_assistant_tokens_mask")
_IGNORED = ("tokenize", "return_dict", "return_tensors", "padding", "truncation", "max_length")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A prompt's text, and the media that placeholders (or MARKs, without a rule) stand for.

    `prefix` is the beginning of the answer, tokenized by itself. `has_unknown_parts`: content of a
    kind that isn't known here is in the text as it was sent.
    """

    text: str
    add_special_tokens: bool
    prefix: str = ""
    media: tuple[Medium, ...] = ()
    rule: ImageRule | None = None
    has_unknown_parts: bool = False


@dataclass(slots=True)
class RenderCounts:
    """What rendering has met so far."""

    num_rendered: int = 0
    num_clock_prompts: int = 0
    num_null_content_prompts: int = 0
    num_media: int = 0
    num_media_bytes: int = 0
    render_s: float = 0.0


class PromptRenderer:
    """Renders prompts with the files of one model folder, which are read when first needed.

    Raises ConfigurationError for an unknown time zone at once, and for a broken model folder or
    template at the first chat.
    """

    def __init__(self, model_dir: Path | None, options: ReplayOptions) -> None:
        self.model_dir = model_dir
        self.options = options
        self.counts = RenderCounts()
        self._time_zone = _zone(options.time_zone)
        self._files: PromptFiles | None = None
        self._templates: TemplateRenderer | None = None
        self._image_rule: ImageRule | None | Unknown = UNKNOWN
        self._checked: set[str] = set()

    def rendered(self, prompt: PromptInput, arrival_s: float | Unknown) -> Rendered:
        """Return a prompt's text. Raises Refusal where there is none, or it can't be rendered."""
        match prompt:
            case RawText():
                return Rendered(text=prompt.text, add_special_tokens=prompt.add_special_tokens)
            case ChatMessages():
                return self._rendered_chat(prompt, arrival_s)
            case _:
                raise Refusal("no-text", "the request holds no text to render")

    @property
    def files(self) -> PromptFiles:
        """Return what the model folder says. Raises Refusal without one."""
        if self._files is None:
            if self.model_dir is None:
                raise Refusal(
                    "no-tokenizer",
                    "the prompt is text and no model folder is given; give one with --model DIR",
                )
            self._files = read_prompt_files(self.model_dir)
        return self._files

    @property
    def templates(self) -> TemplateRenderer:
        """Return the renderer of chat templates."""
        if self._templates is None:
            self._templates = TemplateRenderer(
                time_zone=self._time_zone,
                time_limit_s=self.options.time_limit_s,
                max_characters=self.options.max_characters,
            )
        return self._templates

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what is to be said of the rendering, a sentence each."""
        notes = []
        if self.counts.num_clock_prompts:
            notes.append(
                "the chat template prints the date: each prompt was rendered at its arrival, "
                f"in {self.options.time_zone}"
            )
        if self.counts.num_null_content_prompts:
            seen = {
                "keep": "as null (the word None, where the template doesn't ask)",
                "drop": "without it",
                "empty": "as an empty text",
            }[self.options.rules.null_content]
            notes.append(f"messages whose content is null reached the template {seen}")
        return tuple(notes)

    def _rendered_chat(self, chat: ChatMessages, arrival_s: float | Unknown) -> Rendered:
        variables = {**self.files.special_tokens, **chat.chat_template_kwargs}
        for name in _IGNORED:
            variables.pop(name, None)
        for name in _REFUSED:
            if name in variables:
                raise Refusal(
                    "invalid-template-kwargs",
                    f"chat_template_kwargs hold `{name}`, which the server sets itself",
                )
        if overrides := [name for name in _OVERRIDES if name in variables]:
            chat = replace(chat, **{name: variables.pop(name) for name in overrides})
        template = self._template(chat)
        media = media_of(chat.messages)
        rule = self._rule(media, chat)
        prepared = prepare_chat(
            replace(chat, chat_template_kwargs=variables),
            self.options.rules,
            self.templates.facts(template),
            None if rule is None else rule.placeholder,
        )
        shown_s = self.options.assumed_arrival_s if arrival_s is UNKNOWN else arrival_s
        started = time.perf_counter()
        text = self._text(template, prepared, shown_s)
        counts = self.counts
        counts.num_rendered += 1
        counts.num_clock_prompts += self.templates.clock_was_read
        counts.num_null_content_prompts += prepared.has_null_content
        counts.render_s += time.perf_counter() - started
        return Rendered(
            text=text,
            add_special_tokens=prepared.chat.add_special_tokens,
            prefix=prepared.prefix,
            media=media,
            rule=rule,
            has_unknown_parts=prepared.has_unknown_parts,
        )

    def _text(self, template: str, prepared: PreparedChat, arrival_s: float | None) -> str:
        chat = prepared.chat
        if chat.add_generation_prompt and chat.continue_final_message:
            raise Refusal(
                "invalid-request",
                "add_generation_prompt and continue_final_message exclude each other: "
                "the server refuses this request",
            )
        for tools in (chat.tools, prepared.other_tools):
            try:
                return self.templates.render(
                    template,
                    chat.messages,
                    tools=tools,
                    documents=chat.documents,
                    add_generation_prompt=chat.add_generation_prompt,
                    continue_final_message=chat.continue_final_message,
                    arrival_s=arrival_s,
                    variables=chat.chat_template_kwargs,
                )
            except Refusal as refusal:
                is_last = tools is prepared.other_tools or prepared.other_tools is None
                if is_last or refusal.kind not in ("template-error", "template-refused"):
                    raise
        raise AssertionError("the last of the tools is returned or raised for")

    def _rule(self, media: Sequence[Medium], chat: ChatMessages) -> ImageRule | None:
        """Return the family's rule, None where it doesn't cover all media of this chat."""
        if not media:
            return None
        self.counts.num_media += len(media)
        self.counts.num_media_bytes += sum(medium.num_bytes or 0 for medium in media)
        if any(medium.modality != "image" for medium in media) or chat.changes_media:
            return None
        if self._image_rule is UNKNOWN:
            self._image_rule = image_rule(self.files.folder)
        return self._image_rule

    def _template(self, chat: ChatMessages) -> str:
        if chat.chat_template is not None:
            return self.files.templates.get(chat.chat_template, chat.chat_template)
        template = self.options.chat_template
        if template is None:
            template = self.files.template_for(has_tools=chat.tools is not None)
        if template not in self._checked:
            try:
                self.templates.check(template)
            except Refusal as refusal:
                raise ConfigurationError(f"{self._place_of(template)}: {refusal.reason}") from None
            self._checked.add(template)
        return template

    def _place_of(self, template: str) -> str:
        for name, text in self.files.templates.items():
            if text == template and template != self.options.chat_template:
                return str(self.files.sources[name])
        return "--chat-template"


def _zone(name: str) -> datetime.tzinfo:
    if name.upper() in ("UTC", "Z"):
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigurationError(
            f"unknown time zone '{name}'; expected an IANA name such as Europe/Zurich or UTC"
        ) from None
