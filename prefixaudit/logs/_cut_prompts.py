"""Which prompts a vLLM server cut before it logged them (`--max-log-len`).

The limit counts characters of the text and ids of the list alike. Where the log or the user names
it, what is as long as the limit was cut. Otherwise it shows itself:

* text and ids are equally long, although a token is rarely a single character (where the tokenizer
  makes every character a token, prompts of other lengths show it);
* the longest text has a round length, and doesn't end as other chats do, in a generation prompt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_DECLARED: Final = re.compile(r"max_log_len['\"]?\s*[=:]\s*(\d{1,9})\b")
_ENDING: Final = 4
_LEAST_LIMIT: Final = 10
_MAX_ENDINGS: Final = 10_000


@dataclass(slots=True, kw_only=True)
class CutPrompts:
    """What the log showed so far; `limit` is None where it wasn't named."""

    limit: int | None = None
    _longest: int = 0
    _equal_lengths: set[int] = field(default_factory=set)
    _endings: dict[str, int] = field(default_factory=dict)
    _num_chats: int = 0
    _most: int = 0
    _usual: set[str] = field(default_factory=set)
    _shown: set[int] = field(default_factory=set)

    def declare(self, text: str) -> None:
        """Take the limit from a line with the server's arguments."""
        if match := _DECLARED.search(text):
            self.limit = int(match.group(1))

    def see(self, text: str | None, num_ids: int | None, *, is_chat: bool) -> None:
        """Take a prompt into account; those behind a prompt say as much of it as those before."""
        length = max(len(text or ""), num_ids or 0)
        self._longest = max(self._longest, length)
        if text is None:
            return
        if num_ids == len(text) >= _LEAST_LIMIT and len(self._equal_lengths) < 3:
            self._equal_lengths.add(num_ids)
        ending = text[-_ENDING:]
        if is_chat and (len(self._endings) < _MAX_ENDINGS or ending in self._endings):
            self._num_chats += 1
            count = self._endings[ending] = self._endings.get(ending, 0) + 1
            if count > self._most:
                self._most = count
                self._usual.clear()
            if count == self._most:
                self._usual.add(ending)

    def limit_of(self, text: str | None, num_ids: int | None, *, is_chat: bool) -> int | None:
        """Return the length at which a prompt (seen before) was cut; None where it's whole.

        Of text and ids, the one that is shorter than this is whole.
        """
        length = max(len(text or ""), num_ids or 0)
        if self.limit is not None:
            return self.limit if length >= self.limit > 0 else None
        if text is None or length < _LEAST_LIMIT:
            return None
        num_equal = len(self._equal_lengths)
        is_equal = num_ids == len(text)
        is_odd = is_chat and length == self._longest and self._ends_oddly(text)
        if (is_equal and num_equal == 1) or (
            _is_round(length) and ((is_equal and num_equal == 2) or is_odd)
        ):
            self._shown.add(length)
            return length
        return None

    def is_cut_answer(self, text: str | None, num_ids: int | None) -> bool:
        """Say whether an answer has the length at which the log's lines are cut."""
        lengths = {len(text or ""), num_ids or 0} - {0}
        if self.limit is not None:
            return max(lengths, default=0) >= self.limit > 0
        return bool(lengths & self._shown) or (len(lengths) == 1 and None not in (text, num_ids))

    def _ends_oddly(self, text: str) -> bool:
        """Say whether most chats end alike, as a generation prompt makes them, but not this one."""
        is_usual = self._num_chats >= 3 and self._most * 2 > self._num_chats
        return is_usual and text[-_ENDING:] not in self._usual


def _is_round(length: int) -> bool:
    return length % 50 == 0 or length % 256 == 0 or length & (length - 1) == 0
