"""From requests to prompts: renders, tokenizes, and says why where that can't be done.

A chat is rendered with its template (the request's own, the one given, or the model folder's) and
tokenized without special tokens, since the template has written them; a raw prompt gets those that
the tokenizer's post-processor adds. An answer's ids are the encoding of its text alone, without
special tokens: what the server generated may have been other ids with the same text, and the
closing token isn't in the text.
"""

from __future__ import annotations

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
from prefixaudit.prompts.media import MARK, placed
from prefixaudit.prompts.options import ReplayOptions
from prefixaudit.prompts.refusal import Refusal
from prefixaudit.prompts.rendering import PromptRenderer, Rendered
from prefixaudit.prompts.statistics import ReplayStatistics

if TYPE_CHECKING:
    from prefixaudit.prompts.encoder import TextEncoder


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedTokens:
    """What the replay of one prompt gives, without the request it belongs to."""

    tokens: TokenArray | BlockHashes
    generated: TokenArray | None | Unknown
    media: tuple[MediaSpan, ...] = ()
    is_approximate: bool = False


Replayed: TypeAlias = ReplayedTokens | Refusal


class Replayer:
    """Replays requests with the files of one model folder, which are read when first needed.

    `model_dir` may be None for logs that hold token ids or block ids. Raises ConfigurationError
    for an unknown time zone at once, and for a broken model folder at the first text.
    """

    def __init__(self, model_dir: Path | None, options: ReplayOptions | None = None) -> None:
        self.model_dir = model_dir
        self.options = options or ReplayOptions()
        self.renderer = PromptRenderer(model_dir, self.options)
        self._encoder: TextEncoder | None = None
        self._num_prompts = self._num_skipped = 0

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
            self._num_skipped += 1
            return Refusal(refusal.kind, refusal.reason)
        self._num_prompts += 1
        return replayed

    def render(self, request: Request) -> Rendered:
        """Return the text that is tokenized, media as one placeholder each.

        Raises Refusal where there is none.
        """
        rendered = self.renderer.rendered(request.prompt, request.arrival_s)
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
            marked = self.renderer.rendered(request.prompt, request.arrival_s)
            token_index = _before_expansion(token_index, self._with_media(marked, None).media)
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
        own = ReplayStatistics(
            num_prompts=self._num_prompts,
            num_skipped=self._num_skipped,
            **asdict(self.renderer.counts),
            notes=self.renderer.notes,
        )
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
    def encoder(self) -> TextEncoder:
        """Return the model's encoder. Raises Refusal without a model folder."""
        if self._encoder is None:
            from prefixaudit.prompts.encoder import TextEncoder

            self._encoder = TextEncoder(
                self.renderer.files.tokenizer,
                cache_bytes=self.options.cache_bytes,
                check_share=self.options.check_share,
            )
        return self._encoder

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
                rendered = self.renderer.rendered(prompt, arrival_s)
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
        bos = self.renderer.files.special_tokens.get("bos_token")
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
