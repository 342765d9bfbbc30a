"""Says how a pair of prompts differs where they part, and whether that is an unstable prefix.

Chats are explained by `chat_changes`. Raw text has no fields; the runs that are found again behind
the parting say whether text was dropped, put in or replaced. Some faults stand in one prompt alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import BlockHashes, ChatMessages, RawText, Request
from prefixaudit.core.why import Blame
from prefixaudit.why.chat_changes import explain_chats
from prefixaudit.why.found import (
    Found,
    covers_most,
    is_more_than_a_phrase,
    is_reordered,
    volatile_at,
)
from prefixaudit.why.rendering import Text, Texts, common_text_length, path_of
from prefixaudit.why.runs import Pair
from prefixaudit.why.structure import compare_messages

# Below it, what two prompts begin with alike is a header, not a text of their own.
_SAME_BEGINNING_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One unstable pair: positions in the trace, and what differs where."""

    position: int
    relative: int
    kind: str
    place: str
    source: Blame | None = None
    period_s: float | None = None
    first_token: int
    character: int | None = None
    num_lost_tokens: int
    details: Mapping[str, int | str] = field(default_factory=dict)


class Explainer:
    """Call it with pairs; `explained` holds those that are unstable."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.explained: list[Explained] = []
        self._prints_null: dict[tuple[object, ...], bool] = {}

    def __call__(self, pair: Pair) -> bool:
        try:
            found = self._find(pair)
        except RecursionError:  # values nested as deep as the reader lets them be
            found = Found("other", "deeply nested values") if pair.runs else None
        if found is None:
            return False
        self.explained.append(
            Explained(
                position=pair.reader.position,
                relative=pair.relative.position,
                kind=found.kind,
                place=found.place,
                source=found.source,
                period_s=found.period_s,
                first_token=pair.num_shared,
                character=found.character,
                num_lost_tokens=pair.num_covered,
                details=found.details,
            )
        )
        return True

    def inspect(self, prompt: Prompt, position: int) -> None:
        """Note what is wrong with a prompt by itself: a second begin token, a null that is printed.

        `position` is the prompt's in the trace; call it after the pair was looked at.
        """
        if self.explained and self.explained[-1].position == position:
            return
        request = prompt.request
        tokens = prompt.tokens
        if (
            isinstance(request.prompt, RawText | ChatMessages)
            and request.prompt.add_special_tokens
            and not isinstance(tokens, BlockHashes)
            and len(tokens) > 1
            and tokens[0] == tokens[1]
        ):
            self._add(position, "double-bos", "the prompt's first token", 1)
        elif isinstance(request.prompt, ChatMessages):
            place = self._printed_null(request, request.prompt)
            if place is not None:
                self._add(position, "null-printed", place, -1)

    def _add(self, position: int, kind: str, place: str, first_token: int) -> None:
        self.explained.append(
            Explained(
                position=position,
                relative=-1,
                kind=kind,
                place=place,
                first_token=first_token,
                num_lost_tokens=0,
            )
        )

    def _printed_null(self, request: Request, chat: ChatMessages) -> str | None:
        """Return the field whose null the template prints as a word, None where none does."""
        for number, message in enumerate(chat.messages):
            if message.get("content", "") is not None:
                continue
            key = (chat.chat_template, message.get("role"), bool(message.get("tool_calls")))
            prints = self._prints_null.get(key)
            if prints is None:
                prints = self._prints_null[key] = self._prints(request, chat, number)
            if prints:
                return path_of(request, number, "content")
        return None

    def _prints(self, request: Request, chat: ChatMessages, number: int) -> bool:
        """Say whether the template prints None where a message's content is null."""
        messages = list(chat.messages)
        messages[number] = {**messages[number], "content": ""}
        bare = replace(request, prompt=replace(chat, messages=messages))
        text, without = self.texts.rendered(request), self.texts.rendered(bare)
        if text is None or without is None:
            return False
        place = common_text_length(text, without)
        return text.startswith(("None", "null"), place) and text[place + 4 :] == without[place:]

    def _find(self, pair: Pair) -> Found | None:
        if (kind := _begins_otherwise(pair)) is not None:
            return Found(kind, "the prompt's first token")
        if _media_differ(pair):
            return Found("image-changed", "the prompt's media")
        ours, theirs = pair.reader.request.prompt, pair.relative.request.prompt
        change = None
        if isinstance(ours, ChatMessages) and isinstance(theirs, ChatMessages):
            change = compare_messages(theirs.messages, ours.messages)
        later, earlier = self.texts.of(pair.reader), self.texts.of(pair.relative)
        if later is None or earlier is None:
            return Found("tokens-differ", "the prompt") if pair.runs else None
        place = common_text_length(earlier.text, later.text[: later.prompt_end])
        if place == min(len(earlier.text), later.prompt_end):
            return self._same_text(pair, later, earlier)
        if change is not None:
            assert isinstance(ours, ChatMessages)
            assert isinstance(theirs, ChatMessages)
            return explain_chats(pair, later, earlier, place, change, ours, theirs)
        return self._in_text(pair, later, earlier, place)

    def _same_text(self, pair: Pair, later: Text, earlier: Text) -> Found | None:
        """One text starts the other, and the tokens differ: at the seam, or in the answer."""
        if not pair.runs:
            return None
        return Found("tokenizer-round-trip", "the answer of the earlier request")

    def _in_text(self, pair: Pair, later: Text, earlier: Text, place: int) -> Found | None:
        """Explain raw text (or a chat against raw text) by what is found again behind."""
        if not pair.runs or pair.is_weak:
            return None
        where = "prompt"
        if (volatile := volatile_at(pair, earlier, later, place)) is not None:
            return Found(volatile.kind, where, period_s=volatile.period_s, character=place)
        first = pair.runs[0]
        starts_alike = pair.num_shared >= _SAME_BEGINNING_TOKENS
        if starts_alike and all(run.there >= pair.relative.num_prompt_tokens for run in pair.runs):
            # All that is found again was generated.
            if place >= earlier.prompt_end:
                return Found("answer-rerendered", "start of the answer", character=place)
            if 2 * place >= earlier.prompt_end and _is_one_session(pair):
                return Found("passing-instruction", where, character=place)
        if not is_more_than_a_phrase(pair):
            return None
        num_new, num_gone = first.start - pair.num_shared, first.there - pair.num_shared
        if is_reordered(pair) and covers_most(pair):
            return Found("passages-reordered", where, character=place)
        if not starts_alike:
            return Found("same-text-elsewhere", where, character=place)
        # Tokens at the seam may be cut differently: a few are neither new nor gone.
        if num_new <= 4 < num_gone:
            return Found("text-dropped", where, character=place)
        if num_gone <= 4 < num_new:
            return Found("text-inserted", where, character=place)
        return Found("text-replaced", where, character=place)


def _is_one_session(pair: Pair) -> bool:
    session = pair.reader.request.session_id
    return isinstance(session, str) and session == pair.relative.request.session_id


def _begins_otherwise(pair: Pair) -> str | None:
    """Say whether one prompt is the other with one more token in front: a begin token, or two."""
    if pair.num_shared > 2 or not pair.runs:
        return None
    ours, theirs = pair.reader.tokens(), pair.relative.tokens()
    for longer, shorter in ((ours, theirs), (theirs, ours)):
        length = min(len(longer) - 1, len(shorter), 64)
        if length > 16 and (longer[1 : length + 1] == shorter[:length]).all():
            return "double-bos" if longer[0] == longer[1] else "bos-differs"
    return None


def _media_differ(pair: Pair) -> bool:
    """Say whether the first differing token stands for media, and theirs were other ones."""
    place = pair.num_shared
    sides = (pair.reader.media, pair.relative.media)
    return any(
        span.offset <= place < span.offset + span.num_tokens for media in sides for span in media
    )
