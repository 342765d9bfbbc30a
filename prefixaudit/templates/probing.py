"""Renders conversations with one model's templates as its server does, and compares prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefixaudit.core.template import Unit
from prefixaudit.errors import ConfigurationError
from prefixaudit.prompts import Refusal, ServerRules, TemplateRenderer
from prefixaudit.prompts.model_folder import TOKENIZER, PromptFiles, read_prompt_files
from prefixaudit.prompts.preparing import prepare
from prefixaudit.templates.conversations import Chat

if TYPE_CHECKING:
    from prefixaudit.core.request import TokenArray
    from prefixaudit.prompts.encoder import TextEncoder

# A Monday at noon: what templates see as the time, unless a question is about it.
NOON_S: Final = 1772452800.0  # 2026-03-02 12:00:00 UTC
_MAX_TEMPLATE_BYTES: Final = 16 << 20
# Our chats have a few thousand characters and take milliseconds; a template that never ends is
# asked no more after some of them.
_TIME_LIMIT_S: Final = 2.0
_MAX_CHARACTERS: Final = 4 << 20
_MAX_TIMEOUTS: Final = 3
_SHOWN_BEFORE: Final = 24
_SHOWN_AFTER: Final = 48
# What templates see where no model folder says it: the tokens of Llama 2, which many copied.
_ASSUMED_TOKENS: Final[Mapping[str, str]] = {"bos_token": "<s>", "eos_token": "</s>"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSource:
    """Templates by name with the file each stands in, and what they are rendered with.

    `tokenizer` is None where nobody gave one; `assumes_tokens`: `special_tokens` are made up.
    """

    files: PromptFiles
    tokenizer: Path | None
    assumes_tokens: bool

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the files that the templates stand in, each once."""
        return tuple(dict.fromkeys(str(path) for path in self.files.sources.values()))

    def path_of(self, template: str) -> str:
        """Return the file that a template stands in."""
        for name, text in self.files.templates.items():
            if text == template:
                return str(self.files.sources[name])
        return self.paths[0]


def load_source(path: Path, model_dir: Path | None) -> TemplateSource:
    """Read a template file, or a model folder (or its tokenizer_config.json) with its templates.

    `model_dir` gives tokenizer and special tokens, and wins over the template's own folder. Raises
    ConfigurationError where there is no template or something can't be read.
    """
    if path.name == "tokenizer_config.json":
        path = path.parent
    if path.is_dir():
        files = read_prompt_files(path, needs_tokenizer=False)
        if not files.templates:
            raise ConfigurationError(f"{path}: no chat template found in this folder")
        return _with_model(files, path if model_dir is None else model_dir)
    text = _template_text(path)
    files = PromptFiles(folder=path.parent, templates={"default": text}, sources={"default": path})
    return _with_model(files, model_dir)


def _with_model(files: PromptFiles, model_dir: Path | None) -> TemplateSource:
    tokens: Mapping[str, str] = {}
    tokenizer = None
    if model_dir is not None:
        tokens = read_prompt_files(model_dir, needs_tokenizer=False).special_tokens
        if (model_dir / TOKENIZER).is_file():
            tokenizer = model_dir / TOKENIZER
    assumes = not tokens
    return TemplateSource(
        files=replace(files, special_tokens=_ASSUMED_TOKENS if assumes else tokens),
        tokenizer=tokenizer,
        assumes_tokens=assumes,
    )


def with_model_of(source: TemplateSource, model: TemplateSource) -> TemplateSource:
    """Return the templates of one source with the tokenizer and special tokens of another."""
    return replace(
        source,
        files=replace(source.files, special_tokens=model.files.special_tokens),
        tokenizer=model.tokenizer,
        assumes_tokens=model.assumes_tokens,
    )


def _template_text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_TEMPLATE_BYTES:
            raise ConfigurationError(f"{path}: larger than 16 MiB; expected a chat template")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path}: byte {error.start} is not UTF-8; chat templates are UTF-8"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An earlier prompt and a later one.

    num_lost   what of the earlier prompt's end isn't at the same place in the later one
    num_prompt the earlier prompt's length; both in the prober's unit
    character  where the texts part, in characters; the shorter text's length where they don't
    """

    before: str
    after: str
    num_lost: int
    num_prompt: int
    character: int

    @property
    def shown(self) -> tuple[str, str] | None:
        """Return both texts around the place where they part, None where nothing is lost."""
        if not self.num_lost:
            return None
        start = max(0, self.character - _SHOWN_BEFORE)
        end = self.character + _SHOWN_AFTER
        return self.before[start:end], self.after[start:end]


class Prober:
    """Renders with the template that the server would take, and measures in tokens if it can.

    `rules` are what the server does to messages before. Raises ConfigurationError, with file and
    line, for a template that isn't valid.
    """

    def __init__(
        self,
        source: TemplateSource,
        rules: ServerRules,
        *,
        renderer: TemplateRenderer | None = None,
        encoder: TextEncoder | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        self.source = source
        self.rules = rules
        self.renderer = renderer or TemplateRenderer(
            time_limit_s=_TIME_LIMIT_S, max_characters=_MAX_CHARACTERS
        )
        self._timeouts: list[Refusal] = []
        self._variables = dict(variables or {})
        self._encoder = encoder
        for name, template in source.files.templates.items():
            try:
                self.renderer.check(template)
            except Refusal as refusal:
                path = source.files.sources[name]
                raise ConfigurationError(f"{path}: {refusal.reason}") from None

    @property
    def unit(self) -> Unit:
        return "characters" if self.encoder is None else "tokens"

    @property
    def encoder(self) -> TextEncoder | None:
        """Return the tokenizer, None where there is none."""
        if self._encoder is None and self.source.tokenizer is not None:
            from prefixaudit.prompts.encoder import TextEncoder

            self._encoder = TextEncoder(self.source.tokenizer)
        return self._encoder

    def template(self, *, has_tools: bool) -> str:
        """Return the template that the server takes. Raises ConfigurationError where none is."""
        try:
            return self.source.files.template_for(has_tools=has_tools)
        except Refusal as refusal:
            raise ConfigurationError(refusal.reason) from None

    def text(
        self,
        chat: Chat,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generate: bool = True,
        rules: ServerRules | None = None,
        arrival_s: float = NOON_S,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Return a prompt's text. Raises Refusal where the template doesn't render the chat."""
        if len(self._timeouts) >= _MAX_TIMEOUTS:
            last = self._timeouts[-1]
            raise Refusal(last.kind, last.reason)
        template = self.template(has_tools=tools is not None)
        facts = self.renderer.facts(template)
        prepared = prepare(chat, self.rules if rules is None else rules, facts)
        try:
            return self.renderer.render(
                template,
                prepared.messages,
                tools=None if tools is None else list(tools),
                documents=None,
                add_generation_prompt=generate,
                continue_final_message=False,
                arrival_s=arrival_s,
                variables={
                    **self.source.files.special_tokens,
                    **self._variables,
                    **(variables or {}),
                },
            )
        except Refusal as refusal:
            if refusal.kind == "template-timeout":
                self._timeouts.append(refusal)
            raise

    def compare(self, before: str, after: str) -> Comparison:
        """Compare an earlier prompt with a later one."""
        character = common_prefix(before, after)
        if self.encoder is None:
            num_kept, num_prompt = character, len(before)
        else:
            first, second = self.ids(before), self.ids(after)
            num_kept, num_prompt = common_ids(first, second), len(first)
        return Comparison(
            before=before,
            after=after,
            num_lost=num_prompt - num_kept,
            num_prompt=num_prompt,
            character=character,
        )

    def ids(self, text: str, *, add_special_tokens: bool = False) -> TokenArray:
        """Return a text's token ids. Only where there is a tokenizer."""
        assert self.encoder is not None
        return self.encoder.encode(text, add_special_tokens=add_special_tokens)

    def length(self, text: str) -> int:
        """Return a text's length in the unit."""
        return len(text) if self.encoder is None else len(self.ids(text))


def common_prefix(first: str, second: str) -> int:
    """Return how many characters two texts have in common at their beginnings."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def common_ids(first: TokenArray, second: TokenArray) -> int:
    """Return how many token ids two prompts have in common at their beginnings."""
    shorter = min(len(first), len(second))
    differing = np.flatnonzero(first[:shorter] != second[:shorter])
    return int(differing[0]) if len(differing) else shorter
