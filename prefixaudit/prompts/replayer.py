"""From requests to prompts: renders, tokenizes, and says why where that can't be done.

A chat is rendered with its template (the request's own, the one given, or the model folder's) and
tokenized without special tokens, since the template has written them; a raw prompt gets those that
the tokenizer's post-processor adds. An answer's ids are the encoding of its text alone, without
special tokens: what the server generated may have been other ids with the same text, and the
closing token isn't in the text.
"""

from __future__ import annotations

import datetime
import time
import zoneinfo
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import (
    BlockHashes,
    ChatMessages,
    Generated,
    LengthOnly,
    MediaSpan,
    NotReplayable,
    PromptInput,
    RawText,
    Request,
    Skipped,
    TokenArray,
    TokenIds,
)
from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.errors import ConfigurationError
from prefixaudit.prompts.image_rules import ImageRule, image_rule
from prefixaudit.prompts.media import MARK, Medium, media_of, placed
from prefixaudit.prompts.model_folder import PromptFiles, read_prompt_files
from prefixaudit.prompts.server_rules import AS_SENT, PreparedChat, ServerRules, prepare_chat
from prefixaudit.prompts.statistics import ReplayStatistics
from prefixaudit.prompts.templates import Refusal, TemplateRenderer

if TYPE_CHECKING:
    from prefixaudit.prompts.encoder import TextEncoder

# Names that the renderer and the server set themselves; in chat_template_kwargs the first four
# win, as in vLLM, the second are refused, and the third have no effect.
_OVERRIDES = ("tools", "documents", "add_generation_prompt", "continue_final_message")
_REFUSED = ("messages", "conversations", "chat_template", "return_assistant_tokens_mask")
_IGNORED = ("tokenize", "return_dict", "return_tensors", "padding", "truncation", "max_length")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How prompts are replayed.

    chat_template   the template's text, instead of the model folder's
    time_zone       the server's zone (IANA name), for templates that print the date
    assumed_arrival_s  Unix time that templates see where a request's arrival isn't known;
                    None: such requests are skipped if their template asks
    rules           what the server does to messages before rendering
    encode_generated  tokenize the answers' texts too
    check_share     share of the text that is encoded plainly as well, as proof
    cache_bytes     memory for parts of texts that were encoded before; 0: encode all plainly
    time_limit_s    CPU seconds that one rendering may take
    max_characters  longest rendering
    """

    chat_template: str | None = None
    time_zone: str = "UTC"
    assumed_arrival_s: float | None = None
    rules: ServerRules = AS_SENT
    encode_generated: bool = True
    check_share: float = 0.003
    cache_bytes: int = 256 << 20
    time_limit_s: float = 5.0
    max_characters: int = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedTokens:
    """What the replay of one prompt gives, without the request it belongs to."""

    tokens: TokenArray | BlockHashes
    generated: TokenArray | None | Unknown
    media: tuple[MediaSpan, ...] = ()
    is_approximate: bool = False


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
class _Counts:
    num_prompts: int = 0
    num_skipped: int = 0
    num_rendered: int = 0
    num_clock_prompts: int = 0
    num_null_content_prompts: int = 0
    num_media: int = 0
    num_media_bytes: int = 0
    render_s: float = 0.0


Replayed: TypeAlias = ReplayedTokens | Refusal


class Replayer:
    """Replays requests with the files of one model folder, which are read when first needed.

    `model_dir` may be None for logs that hold token ids or block ids. Raises ConfigurationError
    for an unknown time zone at once, and for a broken model folder at the first text.
    """

    def __init__(self, model_dir: Path | None, options: ReplayOptions | None = None) -> None:
        self.model_dir = model_dir
        self.options = options or ReplayOptions()
        self._time_zone = _zone(self.options.time_zone)
        self._files: PromptFiles | None = None
        self._renderer: TemplateRenderer | None = None
        self._encoder: TextEncoder | None = None
        self._image_rule: ImageRule | None | Unknown = UNKNOWN
        self._checked: set[str] = set()
        self._counts = _Counts()

    def replay(self, request: Request) -> Prompt | Skipped:
        """Return the request's tokens, or why there are none (`kind` and reason, no text)."""
        replayed = self.replay_parts(request.prompt, request.arrival_s, request.generated)
        return finished(request, replayed)

    def replay_parts(
        self,
        prompt: PromptInput,
        arrival_s: float | Unknown,
        generated: Generated | None | Unknown,
    ) -> Replayed:
        """Replay without the request around it: what other processes are sent and send back."""
        try:
            replayed = self._replayed(prompt, arrival_s, generated)
        except Refusal as refusal:
            self._counts.num_skipped += 1
            return Refusal(refusal.kind, refusal.reason)
        self._counts.num_prompts += 1
        return replayed

    def render(self, request: Request) -> Rendered:
        """Return the text that is tokenized, media as one placeholder each.

        Raises Refusal where there is none.
        """
        rendered = self._rendered(request.prompt, request.arrival_s)
        return (
            replace(rendered, text=rendered.text.replace(MARK, "")) if rendered.media else rendered
        )

    def character_of(self, request: Request, token_index: int) -> int:
        """Return where in the rendered text the prompt's token starts, in characters.

        The end of the text for a token that has no text of its own. Raises Refusal where the
        request has no text, IndexError where the prompt has no such token.
        """
        rendered = self.render(request)
        if rendered.media:
            replayed = self._with_media(self._rendered(request.prompt, request.arrival_s), None)
            token_index = _before_expansion(token_index, replayed.media)
        if rendered.prefix:
            adds = rendered.add_special_tokens
            if token_index >= len(self._encoded(rendered.text, add_special_tokens=adds)):
                return len(rendered.text)  # in the answer's beginning, which isn't in the text
        return self.encoder.character_of(
            rendered.text, token_index, add_special_tokens=rendered.add_special_tokens
        )

    @property
    def statistics(self) -> ReplayStatistics:
        """Return what was done so far."""
        own = ReplayStatistics(**asdict(self._counts), notes=self._notes())
        if self._encoder is None:
            return own
        encoding = self._encoder.statistics
        return own + ReplayStatistics(
            num_encoded_tokens=encoding.num_encoded_tokens,
            num_reused_tokens=encoding.num_reused_tokens,
            num_proofs=encoding.num_proofs,
            num_proved_tokens=encoding.num_proved_tokens,
            num_failed_proofs=encoding.num_failed_proofs,
            encode_s=encoding.encode_s,
            proof_s=encoding.proof_s,
            notes=tuple(encoding.notes),
        )

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
    def encoder(self) -> TextEncoder:
        """Return the model's encoder. Raises Refusal without a model folder."""
        if self._encoder is None:
            from prefixaudit.prompts.encoder import TextEncoder

            self._encoder = TextEncoder(
                self.files.tokenizer,
                cache_bytes=self.options.cache_bytes,
                check_share=self.options.check_share,
            )
        return self._encoder

    @property
    def renderer(self) -> TemplateRenderer:
        """Return the renderer of chat templates."""
        if self._renderer is None:
            self._renderer = TemplateRenderer(
                time_zone=self._time_zone,
                time_limit_s=self.options.time_limit_s,
                max_characters=self.options.max_characters,
            )
        return self._renderer

    def _notes(self) -> tuple[str, ...]:
        notes = []
        if self._counts.num_clock_prompts:
            notes.append(
                "the chat template prints the date: each prompt was rendered at its arrival, "
                f"in {self.options.time_zone}"
            )
        if self._counts.num_null_content_prompts:
            seen = {
                "keep": "as null (the word None, where the template doesn't ask)",
                "drop": "without it",
                "empty": "as an empty text",
            }[self.options.rules.null_content]
            notes.append(f"messages whose content is null reached the template {seen}")
        return tuple(notes)

    # --- one prompt

    def _replayed(
        self,
        prompt: PromptInput,
        arrival_s: float | Unknown,
        generated: Generated | None | Unknown,
    ) -> ReplayedTokens:
        match prompt:
            case TokenIds():
                return ReplayedTokens(
                    tokens=prompt.token_ids,
                    generated=self._generated(generated),
                    media=prompt.media,
                )
            case BlockHashes():
                return ReplayedTokens(
                    tokens=prompt, generated=None if generated is None else UNKNOWN
                )
            case LengthOnly():
                raise Refusal(
                    "length-only", "only the prompt's length was logged: no reuse can be computed"
                )
            case NotReplayable():
                raise Refusal(prompt.kind, prompt.reason)
            case ChatMessages() | RawText():
                rendered = self._rendered(prompt, arrival_s)
                if rendered.media:
                    return self._with_media(rendered, generated)
                tokens = self._encoded(
                    rendered.text, add_special_tokens=rendered.add_special_tokens
                )
                if rendered.prefix:
                    tokens = self._followed(tokens, rendered.prefix)
                return ReplayedTokens(
                    tokens=tokens,
                    generated=self._generated(generated),
                    is_approximate=rendered.has_unknown_parts,
                )

    def _with_media(
        self, rendered: Rendered, generated: Generated | None | Unknown
    ) -> ReplayedTokens:
        tokens = placed(
            rendered.text,
            rendered.media,
            rendered.rule,
            lambda text: self._encoded(text, add_special_tokens=rendered.add_special_tokens),
            self.encoder.token_id,
        )
        token_ids = tokens.token_ids
        if rendered.prefix:
            token_ids = self._followed(token_ids, rendered.prefix)
        return ReplayedTokens(
            tokens=token_ids,
            generated=self._generated(generated),
            media=tokens.media,
            is_approximate=tokens.is_approximate or rendered.has_unknown_parts,
        )

    def _followed(self, token_ids: TokenArray, prefix: str) -> TokenArray:
        """Put an answer's beginning behind a prompt, as SGLang does: without its first BOS."""
        added = self._encoded(prefix, add_special_tokens=True)
        bos = self.files.special_tokens.get("bos_token")
        if isinstance(bos, str) and len(added) and added[0] == self.encoder.token_id(bos):
            added = added[1:]
        whole = np.concatenate([token_ids, added]).astype(np.uint32, copy=False)
        whole.flags.writeable = False
        return whole

    def _generated(self, generated: Generated | None | Unknown) -> TokenArray | None | Unknown:
        match generated:
            case TokenIds():
                return generated.token_ids
            case RawText():
                if not self.options.encode_generated or self.model_dir is None:
                    return UNKNOWN
                try:
                    return self._encoded(generated.text, add_special_tokens=False)
                except Refusal:
                    return UNKNOWN
            case _:
                return generated

    def _encoded(self, text: str, *, add_special_tokens: bool) -> TokenArray:
        try:
            return self.encoder.encode(text, add_special_tokens=add_special_tokens)
        except UnicodeError:
            raise Refusal(
                "invalid-text", "the prompt holds half a surrogate pair, which has no tokens"
            ) from None

    def _rendered(self, prompt: PromptInput, arrival_s: float | Unknown) -> Rendered:
        match prompt:
            case RawText():
                return Rendered(text=prompt.text, add_special_tokens=prompt.add_special_tokens)
            case ChatMessages():
                return self._rendered_chat(prompt, arrival_s)
            case _:
                raise Refusal("no-text", "the request holds no text to render")

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
            self.renderer.facts(template),
            None if rule is None else rule.placeholder,
        )
        shown_s = self.options.assumed_arrival_s if arrival_s is UNKNOWN else arrival_s
        started = time.perf_counter()
        text = self._text(template, prepared, shown_s)
        counts = self._counts
        counts.num_rendered += 1
        counts.num_clock_prompts += self.renderer.clock_was_read
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
                return self.renderer.render(
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
        self._counts.num_media += len(media)
        self._counts.num_media_bytes += sum(medium.num_bytes or 0 for medium in media)
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
                self.renderer.check(template)
            except Refusal as refusal:
                raise ConfigurationError(f"{self._place_of(template)}: {refusal.reason}") from None
            self._checked.add(template)
        return template

    def _place_of(self, template: str) -> str:
        for name, text in self.files.templates.items():
            if text == template and template != self.options.chat_template:
                return str(self.files.sources[name])
        return "--chat-template"


def finished(request: Request, replayed: Replayed) -> Prompt | Skipped:
    """Put a request and what its replay gave together."""
    if isinstance(replayed, Refusal):
        return Skipped(source=request.source, kind=replayed.kind, reason=replayed.reason)
    tokens = replayed.tokens
    return Prompt(
        request=request,
        tokens=tokens,
        num_prompt_tokens=(
            tokens.num_prompt_tokens if isinstance(tokens, BlockHashes) else len(tokens)
        ),
        generated_token_ids=replayed.generated,
        media=replayed.media,
        is_approximate=replayed.is_approximate,
    )


def _before_expansion(token_index: int, media: Sequence[MediaSpan]) -> int:
    """Return where a token stood when each medium was one placeholder."""
    added = 0
    for span in media:
        if token_index >= span.offset + span.num_tokens:
            added += span.num_tokens - 1
        elif token_index > span.offset:
            return span.offset - added
    return token_index - added


def _zone(name: str) -> datetime.tzinfo:
    if name.upper() in ("UTC", "Z"):
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigurationError(
            f"unknown time zone '{name}'; expected an IANA name such as Europe/Zurich or UTC"
        ) from None
