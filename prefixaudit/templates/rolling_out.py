"""A log under an old and a new template: what changes, what a roll-out costs, what stays.

Every request is rendered and encoded with both templates; both prompts go into one tree of blocks,
so that equal blocks have equal ids, and traces of either template are rows of one trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefixaudit.analysis.assembly import key_fields
from prefixaudit.analysis.pipeline import Quiet, generated_setting, replay_options_for
from prefixaudit.analysis.simulating import simulate
from prefixaudit.analysis.sizing import capacity_of, choose_block_size
from prefixaudit.chain import TraceBuilder
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import BlockHashes, ChatMessages, Request, Skipped
from prefixaudit.core.template import LogChange, RollOut, SteadyState
from prefixaudit.core.trace import BlockTrace, Int64Array
from prefixaudit.deployment import Deployment
from prefixaudit.errors import UsageError
from prefixaudit.logs import read_logs
from prefixaudit.printable import printable
from prefixaudit.prompts import Replayer
from prefixaudit.templates.probing import TemplateSource, common_ids, common_prefix
from prefixaudit.templates.residents import rows_of, useless_blocks

if TYPE_CHECKING:
    from prefixaudit.analysis import Progress
    from prefixaudit.templates.diffing import DiffOptions

_PROGRESS_REQUESTS: Final = 64
_MAX_ROLE_CHARACTERS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OnLog:
    """The comparison, or why there is none."""

    log: LogChange | None
    notes: tuple[str, ...]
    incomplete: str | None


@dataclass(slots=True)
class _Counts:
    num_requests: int = 0
    num_skipped: int = 0
    num_unaffected: int = 0
    num_same: int = 0
    num_changed: int = 0
    num_kept_tokens: int = 0
    num_refused_by_both: int = 0


class _Both:
    """Replays requests with both templates, and counts."""

    def __init__(self, old: TemplateSource, new: TemplateSource, replayer: Replayer) -> None:
        self.counts = _Counts()
        self.first_changed: Counter[int] = Counter()
        self.changed_at: Counter[str] = Counter()
        self.refused_now: Counter[str] = Counter()
        self.rendered_now: Counter[str] = Counter()
        self._old, self._new, self._replayer = old, new, replayer

    def prompts(self, request: Request) -> tuple[Prompt, Prompt] | None:
        """Return the prompt under each template, None where one of them gives none."""
        counts = self.counts
        counts.num_requests += 1
        chat = request.prompt
        if not isinstance(chat, ChatMessages) or chat.chat_template is not None:
            counts.num_unaffected += 1
            found = self._replayer.replay(request)
            if isinstance(found, Skipped):
                counts.num_skipped += 1
                return None
            counts.num_kept_tokens += found.num_prompt_tokens
            return found, found
        before = self._replayed(request, chat, self._old)
        after = self._replayed(request, chat, self._new)
        if isinstance(before, Skipped) or isinstance(after, Skipped):
            self._refused(before, after)
            return None
        if self._differ(before, after):
            self.changed_at[self._place(request, chat)] += 1
        return before, after

    def _with_template(
        self, request: Request, chat: ChatMessages, source: TemplateSource
    ) -> Request:
        template = source.files.template_for(has_tools=chat.tools is not None)
        return replace(request, prompt=replace(chat, chat_template=template))

    def _replayed(
        self, request: Request, chat: ChatMessages, source: TemplateSource
    ) -> Prompt | Skipped:
        found = self._replayer.replay(self._with_template(request, chat, source))
        return found if isinstance(found, Skipped) else replace(found, request=request)

    def _place(self, request: Request, chat: ChatMessages) -> str:
        """Say what stands where the two texts part."""
        before, after = (
            self._replayer.render(self._with_template(request, chat, source)).text
            for source in (self._old, self._new)
        )
        return place_in_chat(chat.messages, before, common_prefix(before, after))

    def _refused(self, before: Prompt | Skipped, after: Prompt | Skipped) -> None:
        match before, after:
            case Skipped(), Skipped():
                self.counts.num_refused_by_both += 1
            case Skipped(kind=kind), _:
                self.rendered_now[kind] += 1
            case _, Skipped(kind=kind):
                self.refused_now[kind] += 1

    def _differ(self, before: Prompt, after: Prompt) -> bool:
        first, second = before.tokens, after.tokens
        assert not isinstance(first, BlockHashes)
        assert not isinstance(second, BlockHashes)
        num_kept = common_ids(first, second)
        self.counts.num_kept_tokens += num_kept
        if num_kept == len(first) == len(second):
            self.counts.num_same += 1
            return False
        self.counts.num_changed += 1
        self.first_changed[num_kept] += 1
        return True


def place_in_chat(messages: Sequence[Mapping[str, Any]], text: str, character: int) -> str:
    """Say at which message of a rendered chat a character stands.

    Messages whose text isn't found as it was sent (trimmed, empty) are passed over.
    """
    end = 0
    for number, message in enumerate(messages):
        content = message.get("content")
        parts = content if isinstance(content, list) else [content]
        texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
        found = [part for part in texts if isinstance(part, str) and part]
        start = text.find(found[0], end) if found else -1
        if start < 0:
            continue
        end = start + len(found[0])
        if character >= end:
            continue
        role = printable(str(message.get("role")))[:_MAX_ROLE_CHARACTERS]
        if character >= start:
            return f"inside a message ({role})"
        return "before the first message" if not number else f"before a message ({role})"
    return "behind the last message"


def compare_on_log(
    old: TemplateSource,
    new: TemplateSource,
    *,
    deployment: Deployment,
    log_paths: Sequence[str],
    options: DiffOptions,
    progress: Progress | None = None,
) -> OnLog:
    """Replay a log with both templates and simulate the pool before, after, and at the roll-out.

    `new.tokenizer` is used for both. Raises what reading, replaying and simulating raise.
    """
    progress = progress or Quiet()
    assert new.tokenizer is not None
    setting = generated_setting(options.analysis, deployment)
    caches_answers = setting != "off"
    replayer = Replayer(
        new.tokenizer.parent, replay_options_for(deployment, encode_generated=caches_answers)
    )
    both = _Both(old, new, replayer)
    builder: TraceBuilder | None = None
    stream = read_logs(log_paths, options.analysis.read_options(deployment))
    num_unread = num_tokens = num_rows = 0
    for item in stream:
        if isinstance(item, Skipped):
            num_unread += 1
            continue
        prompts = both.prompts(deployment.complete(item))
        if prompts is None:
            continue
        if builder is None:
            block_size, _ = choose_block_size(deployment, prompts[0])
            builder = TraceBuilder(block_size=block_size, cache_generated=caches_answers)
        for prompt in prompts:
            builder.add(prompt, num_rows)
            num_rows += 1
            num_tokens += prompt.num_prompt_tokens
        if not num_rows % _PROGRESS_REQUESTS:
            progress.update(
                stream.num_bytes_read, stream.num_bytes_total, num_rows // 2, num_tokens
            )
    notes = _notes(both, num_unread, replayer)
    if builder is None:
        return OnLog(
            log=None, notes=notes, incomplete="no request of the log is rendered by both templates"
        )
    progress.stage("simulating the pool")
    log = _Simulation(builder.finish(), deployment, options).change(both)
    return OnLog(log=log, notes=notes, incomplete=None)


def _notes(both: _Both, num_unread: int, replayer: Replayer) -> tuple[str, ...]:
    notes = list(replayer.statistics.notes)
    if num_unread:
        notes.append(f"{num_unread:,} records of the log gave no request")
    if both.counts.num_skipped:
        notes.append(f"{both.counts.num_skipped:,} requests without a chat couldn't be replayed")
    notes.append(
        "figures of the log are over the requests that both templates render; what lies in the "
        "pool at the roll-out is told of an LRU pool"
    )
    return tuple(notes)


class _Simulation:
    """One trace of 2 rows a request, old template and new template in turn."""

    def __init__(self, trace: BlockTrace, deployment: Deployment, options: DiffOptions) -> None:
        self._trace = trace
        self._deployment = deployment
        self._options = options
        self._num = trace.num_requests // 2
        self._capacity = capacity_of(deployment, trace.block_size)
        self._fields = key_fields(deployment)
        self._old = np.arange(self._num) * 2
        self._new = self._old + 1

    def change(self, both: _Both) -> LogChange:
        old_hits, new_hits = self._hits(self._old), self._hits(self._new)
        counts = both.counts
        return LogChange(
            num_requests=counts.num_requests,
            num_unaffected=counts.num_unaffected,
            num_same=counts.num_same,
            num_changed=counts.num_changed,
            first_changed=tuple(
                sorted(both.first_changed.items(), key=lambda item: (-item[1], item[0]))
            ),
            changed_at=tuple(sorted(both.changed_at.items(), key=lambda item: (-item[1], item[0]))),
            num_prompt_tokens_kept=counts.num_kept_tokens,
            refused_now=dict(both.refused_now.most_common()),
            rendered_now=dict(both.rendered_now.most_common()),
            num_refused_by_both=counts.num_refused_by_both,
            block_size=self._trace.block_size,
            capacity_blocks=self._capacity,
            before=self._state(self._old, old_hits),
            after=self._state(self._new, new_hits),
            roll_out=self._roll_out(new_hits),
        )

    def _hits(self, rows: Int64Array) -> Int64Array:
        """Return the cached tokens of some rows (int64 [rows]), from a cold pool."""
        return simulate(
            rows_of(self._trace, rows),
            self._fields,
            engine=self._deployment.engine,
            policy=self._deployment.engine_settings.get("eviction_policy"),
            capacity_blocks=self._capacity,
            flops_by_depth=None,
        ).lookups.num_cached_tokens

    def _state(self, rows: Int64Array, hits: Int64Array) -> SteadyState:
        lengths = self._trace.num_prompt_tokens[rows]
        total, cached = int(lengths.sum()), int(hits.sum())
        flops = saved = None
        if self._deployment.model is not None:
            from prefixaudit.analysis.figures import prefill_per_request
            from prefixaudit.cost.flops import saved_flops

            flops = float(prefill_per_request(self._deployment.model, lengths).sum())
            saved = float(np.sum(saved_flops(self._deployment.model, hits)))
        return SteadyState(
            num_prompt_tokens=total,
            num_cached_tokens=cached,
            token_hit_rate=cached / total if total else None,
            prefill_flops=flops,
            prefill_flops_saved=saved,
        )

    def _roll_out(self, steady_hits: Int64Array) -> RollOut:
        order = rows_of(self._trace, self._old).replay_order()
        first = min(self._num, round(self._num * self._options.roll_out_share))
        is_new = np.ones(self._num, dtype=bool)
        is_new[order[:first]] = False
        hits = self._hits(np.where(is_new, self._new, self._old))
        resident, useless = useless_blocks(
            self._trace,
            self._trace.namespaces(self._fields),
            served=self._old[order[:first]],
            wanted=self._new,
            capacity_blocks=self._capacity,
        )
        served = order[first:]
        lost = (steady_hits - hits)[served]
        losing = np.flatnonzero(lost > 0)
        flops, seconds = self._lost_cost(served, steady_hits[served], hits[served])
        return RollOut(
            first_request=first,
            num_requests_after=self._num - first,
            num_resident_tokens=resident * self._trace.block_size,
            num_useless_tokens=useless * self._trace.block_size,
            num_hit_tokens_after=int(hits[served].sum()),
            num_lost_tokens=int(lost.sum()),
            num_requests_until_warm=int(losing[-1]) + 1 if len(losing) else 0,
            lost_flops=flops,
            lost_s=seconds,
        )

    def _lost_cost(
        self, served: Int64Array, steady: Int64Array, hits: Int64Array
    ) -> tuple[float | None, tuple[float, float] | None]:
        """Return FLOPs and GPU seconds (a range) of what is computed once more."""
        model, options = self._deployment.model, self._options
        if model is None:
            if options.gpu is not None:
                raise UsageError("seconds need a model; give a model folder with --model DIR")
            return None, None
        from prefixaudit.cost.flops import saved_flops

        flops = float(np.sum(saved_flops(model, steady)) - np.sum(saved_flops(model, hits)))
        if options.gpu is None:
            return flops, None
        from prefixaudit.cost.hardware import find_gpu
        from prefixaudit.cost.time import TimeModel

        times = TimeModel(
            spec=model, gpu=find_gpu(options.gpu), tensor_parallel=options.tensor_parallel
        )
        lengths = self._trace.num_prompt_tokens[self._new[served]]
        took = times.prefill_s(lengths - hits, hits) - times.prefill_s(lengths - steady, steady)
        low, high = took.total()
        # Of short prompts a hit can cost more than it saves; losing it costs nothing then.
        return flops, (max(0.0, low), max(0.0, high))
