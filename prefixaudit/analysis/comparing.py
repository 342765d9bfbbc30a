"""Two requests of a log side by side, or one and the earlier one that it shares most with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prefixaudit.analysis.assembly import key_fields
from prefixaudit.analysis.pipeline import generated_setting, replay_options_for
from prefixaudit.analysis.reasons import Reasons
from prefixaudit.analysis.simulating import simulate
from prefixaudit.analysis.sizing import capacity_of, choose_block_size
from prefixaudit.chain import TraceBuilder
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import BlockHashes, Request, Skipped
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.core.why import ComparedRequest, Comparison
from prefixaudit.deployment import Deployment
from prefixaudit.errors import IncompleteError, UsageError
from prefixaudit.why.kinds import KINDS
from prefixaudit.why.rendering import common_text_length
from prefixaudit.why.runs import Pair, Remembered

if TYPE_CHECKING:
    from prefixaudit.analysis.options import AnalysisOptions

_AROUND: Final = 60


@dataclass(frozen=True, slots=True)
class _Found:
    prompt: Prompt
    name: str


def compare(
    path: str,
    deployment: Deployment,
    options: AnalysisOptions,
    first: str,
    second: str | None,
    *,
    show_text: bool,
) -> Comparison:
    """Compare two requests of a log; without `second`, the first with its best earlier relative.

    Requests are named by their id or their line. The hits are those of the two alone, or of the
    request after all of the log before it. Raises UsageError for a request that isn't there, and
    IncompleteError for one that can't be replayed.
    """
    caches_answers = generated_setting(options, deployment) != "off"
    reasons = Reasons(
        deployment,
        cache_generated=caches_answers,
        replay_options=replay_options_for(deployment, encode_generated=caches_answers),
    )
    wanted = [first] if second is None else [first, second]
    builder: TraceBuilder | None = None
    found: dict[str, _Found] = {}
    for prompt in _prompts(path, deployment, options, reasons, wanted):
        name = _name_of(prompt.request, wanted)
        if second is not None and (name is None or name in found):
            continue
        if builder is None:
            block_size, _ = choose_block_size(deployment, prompt)
            builder = TraceBuilder(block_size=block_size, cache_generated=caches_answers)
        builder.add(prompt, reasons.pairing.num_added)
        reasons.add(prompt)
        if name is not None:
            found[name] = _Found(prompt, name)
        if len(found) == len(wanted):
            break
    for name in wanted:
        if name not in found:
            raise UsageError(
                f"{path}: no request '{name}'; expected a request id, or the line of its record"
            )
    assert builder is not None, "a request was found"
    later = list(found.values())[-1].prompt
    if isinstance(later.tokens, BlockHashes):
        raise UsageError(f"{path}: the log holds block ids, which have no tokens to compare")
    pair = reasons.pairing.last_pair
    if pair is None and second is not None:
        pair = reasons.pairing.last_two()
    if pair is None:
        raise UsageError(
            f"{path}: request '{first}' shares nothing with an earlier one",
            hint="name a second request to compare it with",
        )
    return _comparison(
        pair,
        builder,
        deployment,
        reasons,
        relative_is_given=second is not None,
        show_text=show_text,
    )


def _prompts(
    path: str,
    deployment: Deployment,
    options: AnalysisOptions,
    reasons: Reasons,
    wanted: Sequence[str],
) -> Iterator[Prompt]:
    from prefixaudit.logs import read_logs

    for item in read_logs([path], options.read_options(deployment)):
        if not isinstance(item, Request):
            continue
        request = deployment.complete(item)
        name = _name_of(request, wanted)
        if len(wanted) == 2 and name is None:
            continue
        prompt = reasons.replayer.replay(request)
        if isinstance(prompt, Skipped):
            if name is not None:
                raise IncompleteError(f"{prompt.source}: {prompt.reason}")
            continue
        yield prompt


def _name_of(request: Request, wanted: Sequence[str]) -> str | None:
    """Return the name by which a request is asked for: its id first, then its line."""
    if request.request_id in wanted:
        return request.request_id
    line = str(request.source.line)
    return line if line in wanted else None


def _comparison(
    pair: Pair,
    builder: TraceBuilder,
    deployment: Deployment,
    reasons: Reasons,
    *,
    relative_is_given: bool,
    show_text: bool,
) -> Comparison:
    trace = builder.finish()
    fields = key_fields(deployment)
    hits = simulate(
        trace,
        fields,
        engine=deployment.engine,
        policy=deployment.engine_settings.get("eviction_policy"),
        capacity_blocks=capacity_of(deployment, trace.block_size),
        flops_by_depth=None,
    ).lookups.num_cached_tokens
    reader, relative = pair.reader, pair.relative
    ours, theirs = reader.request.identity, relative.request.identity
    differing, unknown = [], []
    for name in fields:
        values = getattr(ours, name), getattr(theirs, name)
        if UNKNOWN in values:
            unknown.append(name)
        elif values[0] != values[1]:
            differing.append(name)
    explained = next(
        (e for e in reversed(reasons.explainer.explained) if e.position == reader.position), None
    )
    kind = None if explained is None else KINDS[explained.kind]
    place = None if explained is None else explained.place
    return Comparison(
        earlier=_side(relative),
        later=_side(reader),
        relative_is_given=relative_is_given,
        block_size=trace.block_size,
        differing_key_fields=tuple(differing),
        unknown_key_fields=tuple(unknown),
        num_shared_tokens=pair.num_shared,
        equal_again=tuple((run.start, run.end) for run in pair.runs),
        relation=reasons.pairing.last_relation,
        kind=None if explained is None else explained.kind,
        title=None if kind is None else kind.title,
        place=place,
        character=None if explained is None else explained.character,
        source=None if kind is None or explained is None else explained.source or kind.source,
        intent=None if kind is None else kind.intent,
        advice=None if kind is None else f"{kind.advice.format(place=place)}.",
        num_hit_tokens=int(hits[-1]),
        text=_text_around(pair, reasons) if show_text else None,
    )


def _side(entry: Remembered) -> ComparedRequest:
    return ComparedRequest(
        request_id=entry.request.request_id,
        source=str(entry.request.source),
        num_prompt_tokens=entry.num_prompt_tokens,
        num_cached_answer_tokens=entry.num_tokens - entry.num_prompt_tokens,
    )


def _text_around(pair: Pair, reasons: Reasons) -> tuple[str, str, str] | None:
    """Return the text before the difference, and what follows in either; None without text."""
    texts = reasons.explainer.texts
    earlier, later = texts.of(pair.relative), texts.of(pair.reader)
    if earlier is None or later is None:
        return None
    place = common_text_length(earlier.text, later.text)
    return (
        later.text[max(0, place - _AROUND) : place],
        earlier.text[place : place + _AROUND],
        later.text[place : place + _AROUND],
    )
