"""Pairs each prompt with the earlier one that it shares most text with, in front or further behind.

Candidates are the latest prompt with the longest common prefix, the last ones of the session, the
parent, and those that hold the same chunks behind the parting. A candidate's worth is its common
prefix and what its later chunks cover; the best one is the relative. All work is per prompt: a walk
in the prefix tree, one pass that cuts it into chunks, one lookup a chunk and a handful of
candidates. What is remembered is bounded; what was forgotten is counted as never seen.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import xxhash

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import (
    BlockHashes,
    ChatMessages,
    RawText,
    Request,
    TokenArray,
)
from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.core.why import Shared, UnstableRuns
from prefixaudit.why.chunks import Chunker
from prefixaudit.why.prefix_tree import PrefixTree
from prefixaudit.why.runs import (
    LEAST_COVERED,
    Pair,
    Remembered,
    covered_by,
    with_runs,
    with_short_runs,
)

# Four bytes a token; prompts are kept for the text around a difference.
_MOST_TREE_TOKENS: Final = 128 << 20
_MOST_CHARACTERS: Final = 96 << 20
_MOST_PROMPTS: Final = 20_000
_MOST_CHUNKS: Final = 4 << 20
_LAST_OF_SESSION: Final = 3
_ELSEWHERE: Final = 512


Relation: TypeAlias = str
Explain: TypeAlias = Callable[[Pair], bool]
"""Told of every pair that could be unstable; says whether it is."""


class Pairing:
    """Tell it of every prompt of the trace, in the trace's order; then ask for what it found."""

    def __init__(
        self,
        explain: Explain | None = None,
        *,
        cache_generated: bool,
        max_tree_tokens: int = _MOST_TREE_TOKENS,
        max_characters: int = _MOST_CHARACTERS,
    ) -> None:
        self._explain = explain
        self._cache_generated = cache_generated
        self._tree = PrefixTree(max_tree_tokens)
        self._chunker = Chunker()
        self._chunk_owner: dict[int, int] = {}
        self._older_owner: dict[int, int] = {}
        self._remembered: OrderedDict[int, Remembered] = OrderedDict()
        self._num_characters = 0
        self._max_characters = max_characters
        self._sessions: dict[str, list[int]] = {}
        self._by_id: dict[str, int] = {}
        self._prefix_tokens = array("q")
        self._run_request = array("q")
        self._run_start = array("q")
        self._run_end = array("q")
        self._endpoints: dict[str | None, int] = {}
        self._endpoint = array("i")
        self.last_pair: Pair | None = None
        self.last_relation: Relation = ""
        self.relations: Counter[Relation] = Counter()
        self.num_compared = 0

    @property
    def num_added(self) -> int:
        return len(self._prefix_tokens)

    @property
    def num_forgotten_tokens(self) -> int:
        return self._tree.num_dropped_tokens

    @property
    def endpoints(self) -> tuple[tuple[str | None, ...], array[int]]:
        """Return the endpoints' names, and each request's place among them."""
        return tuple(self._endpoints), self._endpoint

    def shared(self) -> Shared:
        """Return what was found, request by request."""
        return Shared(
            prefix_tokens=np.array(self._prefix_tokens, dtype=np.int64),
            runs=UnstableRuns(
                request=np.array(self._run_request, dtype=np.int64),
                start=np.array(self._run_start, dtype=np.int64),
                end=np.array(self._run_end, dtype=np.int64),
            ),
        )

    def add(self, prompt: Prompt) -> None:
        """Compare the next prompt with the earlier ones, and remember it."""
        position = len(self._prefix_tokens)
        request = prompt.request
        endpoint = request.endpoint if isinstance(request.endpoint, str) else None
        self._endpoint.append(self._endpoints.setdefault(endpoint, len(self._endpoints)))
        if isinstance(prompt.tokens, BlockHashes):
            self._prefix_tokens.append(-1)
            return
        tokens = self._tokens(prompt)
        length = prompt.num_prompt_tokens
        inserted = self._tree.insert(tokens, position)
        shared = min(inserted.num_shared, length)
        self._prefix_tokens.append(shared)
        reader = Remembered(
            position=position,
            request=request,
            num_prompt_tokens=length,
            num_tokens=len(tokens),
            node=inserted.node,
            chunks=self._chunker.chunks(tokens),
            num_characters=_num_characters(request),
            media=prompt.media,
        )
        self.num_compared += 1
        self.last_pair = None
        self.last_relation = self._compare(reader, shared, inserted.partner)
        self.relations[self.last_relation] += 1
        self._remember(reader)

    def add_uncompared(self, num_prompts: int) -> None:
        """Note prompts of block ids, whose endpoint nobody knows; they aren't compared."""
        number = self._endpoints.setdefault(None, len(self._endpoints))
        self._endpoint.extend([number] * num_prompts)
        self._prefix_tokens.extend([-1] * num_prompts)

    def last_two(self) -> Pair:
        """Return the last two prompts as a pair, however little they share (no runs)."""
        relative, reader = list(self._remembered.values())[-2:]
        shared = min(
            PrefixTree.shared_length(reader.node, relative.node),
            reader.num_prompt_tokens,
            relative.num_tokens,
        )
        return Pair(reader=reader, relative=relative, num_shared=shared, runs=())

    # --- one prompt and its relative

    def _compare(self, reader: Remembered, shared: int, partner: int) -> Relation:
        """Find the reader's relative, keep what they share; return how they relate."""
        chunks, length = reader.chunks, reader.num_prompt_tokens
        behind = int(np.searchsorted(chunks.starts, shared))
        ahead = self._owners(reader, behind)
        votes: Counter[int] = Counter()
        for owner, size in ahead:
            votes[owner] += size
        candidates = self._candidates(reader, partner, votes)
        best: Pair | None = None
        worth = 0
        for candidate in candidates:
            prefix = min(
                PrefixTree.shared_length(reader.node, candidate.node),
                length,
                candidate.num_tokens,
            )
            covered = covered_by(reader, candidate, prefix)
            found = prefix + (covered if covered >= LEAST_COVERED else 0)
            if found > worth or (
                found == worth and best is not None and _nearer(reader, candidate, best.relative)
            ):
                worth = found
                best = Pair(reader=reader, relative=candidate, num_shared=prefix, runs=())
        if best is None or worth < LEAST_COVERED:
            return "first of its kind"
        if worth > best.num_shared:
            best = with_runs(best, shared)
        elif best.num_shared < min(length, best.relative.num_tokens):
            best = with_short_runs(best)
        self.last_pair = best
        return self._judge(best, shared)

    def _judge(self, pair: Pair, shared: int) -> Relation:
        """Return the pair's relation; what could be unstable is explained, and its runs kept."""
        reader, relative = pair.reader, pair.relative
        if not pair.runs and pair.num_shared >= reader.num_prompt_tokens:
            repeats = reader.num_prompt_tokens == relative.num_prompt_tokens
            return "repeats an earlier prompt" if repeats else "goes back to an earlier prompt"
        extends = pair.num_shared >= relative.num_prompt_tokens or _extends_text(pair)
        may_be_unstable = bool(pair.runs) or (
            pair.num_shared < relative.num_tokens and _continues(reader.request, relative.request)
        )
        if not may_be_unstable or (self._explain is not None and not self._explain(pair)):
            return "extends an earlier prompt" if extends else "shares a beginning, then is new"
        for run in pair.runs:
            start, end = max(run.start, shared), min(run.end, reader.num_prompt_tokens)
            if start < end:
                self._run_request.append(reader.position)
                self._run_start.append(start)
                self._run_end.append(end)
        return "unstable"

    def _candidates(
        self, reader: Remembered, partner: int, votes: Counter[int]
    ) -> list[Remembered]:
        numbers = [partner]
        request = reader.request
        if isinstance(request.parent_id, str):
            numbers.append(self._by_id.get(request.parent_id, -1))
        if isinstance(request.session_id, str):
            numbers.extend(self._sessions.get(request.session_id, ())[-2:])
        if votes:
            numbers.append(max(votes))
            numbers.extend(number for number, _ in votes.most_common(2))
        found = [self._remembered.get(number) for number in dict.fromkeys(numbers)]
        return [entry for entry in found if entry is not None]

    def _owners(self, reader: Remembered, first: int) -> list[tuple[int, int]]:
        """Return (prompt, tokens) for the chunks from `first` on that were seen, and own them."""
        chunks, length = reader.chunks, reader.num_prompt_tokens
        hashes = chunks.hashes[first:].tolist()
        sizes = (chunks.ends[first:] - chunks.starts[first:]).tolist()
        ends = chunks.ends[first:].tolist()
        owner, older = self._chunk_owner, self._older_owner
        found = []
        for number, size, end in zip(hashes, sizes, ends, strict=True):
            known = owner.get(number)
            if known is None:
                known = older.get(number)
            if known is not None and end <= length and known != reader.position:
                found.append((known, size))
            owner[number] = reader.position
        if len(owner) > _MOST_CHUNKS:
            self._older_owner, self._chunk_owner = owner, {}
        return found

    # --- memory

    def _tokens(self, prompt: Prompt) -> TokenArray:
        """Return the tokens that the cache sees: answers behind, placeholders by their content."""
        tokens = prompt.tokens
        assert not isinstance(tokens, BlockHashes), "the caller looked"
        if prompt.media:
            tokens = tokens.copy()
            for span in prompt.media:
                mark = xxhash.xxh32_intdigest(span.identifier.encode("utf-8", "surrogatepass"))
                tokens[span.offset : span.offset + span.num_tokens] ^= np.uint32(mark)
        answer: TokenArray | None | Unknown = prompt.generated_token_ids
        if self._cache_generated and answer is not None and answer is not UNKNOWN:
            return np.concatenate([tokens, answer[: max(0, len(answer) - 1)]])
        return tokens

    def _remember(self, reader: Remembered) -> None:
        request, position = reader.request, reader.position
        self._remembered[position] = reader
        self._num_characters += reader.num_characters
        self._by_id[request.request_id] = position
        if isinstance(request.session_id, str):
            session = self._sessions.setdefault(request.session_id, [])
            session.append(position)
            del session[:-_LAST_OF_SESSION]
        while len(self._remembered) > 1 and (
            self._num_characters > self._max_characters or len(self._remembered) > _MOST_PROMPTS
        ):
            _, oldest = self._remembered.popitem(last=False)
            self._num_characters -= oldest.num_characters
            if self._by_id.get(oldest.request.request_id) == oldest.position:
                del self._by_id[oldest.request.request_id]
            session_id = oldest.request.session_id
            if isinstance(session_id, str) and self._sessions.get(session_id, [0])[-1:] == [
                oldest.position
            ]:
                del self._sessions[session_id]


def _nearer(reader: Remembered, candidate: Remembered, best: Remembered) -> bool:
    """Say whether of two equal candidates the first one is the better: same session, then later."""

    def rank(entry: Remembered) -> tuple[bool, int]:
        session = reader.request.session_id
        same = isinstance(session, str) and entry.request.session_id == session
        return same, entry.position

    return rank(candidate) > rank(best)


def _continues(request: Request, earlier: Request) -> bool:
    """Say whether a chat holds all messages of an earlier one, and more: it should extend it."""
    ours, theirs = request.prompt, earlier.prompt
    if isinstance(ours, ChatMessages) and isinstance(theirs, ChatMessages):
        count = len(theirs.messages)
        try:
            return len(ours.messages) > count and all(
                ours.messages[place] == theirs.messages[place] for place in range(count - 1, -1, -1)
            )
        except RecursionError:  # values nested as deep as the reader lets them be
            return False
    return False


def _extends_text(pair: Pair) -> bool:
    """Say whether raw text goes on where an earlier one ended; a token at the seam may differ."""
    ours, theirs = pair.reader.request.prompt, pair.relative.request.prompt
    return (
        isinstance(ours, RawText)
        and isinstance(theirs, RawText)
        and ours.text.startswith(theirs.text)
    )


def _num_characters(request: Request) -> int:
    """Return about how much room a request's text takes."""
    prompt = request.prompt
    match prompt:
        case RawText():
            return len(prompt.text)
        case ChatMessages():
            total = _ELSEWHERE
            for message in prompt.messages:
                content = message.get("content") if isinstance(message, dict) else None
                total += len(content) + 128 if isinstance(content, str) else _ELSEWHERE
            return total
        case _:
            return _ELSEWHERE
