"""What is said of a chat template, and of a change from one template to another.

Lengths are in tokens where a tokenizer is given, else in characters (`unit`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from prefixaudit.core.finding import Finding

Unit: TypeAlias = Literal["tokens", "characters"]
AnswerVerdict: TypeAlias = Literal["yes", "no", "refused", "not-asked"]
"""`refused`: the template doesn't render this chat. `not-asked`: the question doesn't apply, or
nobody could answer it; the answer says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateAnswer:
    """One row of the table.

    name        of the question, stable between versions
    question    as a person reads it; `yes` isn't always the good answer
    group       questions of one group stand together
    about       what was seen, without the template's own text
    num_lost    of an earlier prompt, how much of its end isn't in the next one; None: not measured
    num_prompt  the length of that earlier prompt
    shown       text around the first difference, for those who ask for it (ours and the template's)
    """

    name: str
    group: str
    question: str
    verdict: AnswerVerdict
    about: str = ""
    num_lost: int | None = None
    num_prompt: int | None = None
    shown: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateHint:
    """A place in a template that could make prompts unstable, found without rendering."""

    kind: str
    name: str
    path: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateReport:
    """The result of `template check`.

    paths     the files that the templates stand in, each once
    rules     whose server's preparation of messages was applied: as-sent, vllm, sglang
    variables what callers may set beside the usual (`chat_template_kwargs`)
    findings  most severe first
    incomplete  why there is no answer, None where there is one
    """

    version: str
    paths: tuple[str, ...]
    unit: Unit
    tokenizer: str | None
    rules: str
    answers: tuple[TemplateAnswer, ...]
    hints: tuple[TemplateHint, ...]
    variables: tuple[str, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    incomplete: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptChange:
    """One of our conversations under both templates.

    kind         same, changed, refused-now, rendered-now, or refused-by-both
    first_changed  position of the first difference, None where there is none
    """

    name: str
    kind: Literal["same", "changed", "refused-now", "rendered-now", "refused-by-both"]
    num_before: int | None
    num_after: int | None
    first_changed: int | None
    shown: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChange:
    """An answer of `template check` that isn't what it was."""

    name: str
    question: str
    before: AnswerVerdict
    after: AnswerVerdict
    num_lost_before: int | None
    num_lost_after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """The whole log under one template, from a cold pool; a pool of the deployment's size."""

    num_prompt_tokens: int
    num_cached_tokens: int
    token_hit_rate: float | None
    prefill_flops: float | None
    prefill_flops_saved: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollOut:
    """The new template takes over at one request of the log (in order of arrival).

    first_request         how many requests the old template serves before
    num_resident_tokens   what the pool holds at that moment
    num_useless_tokens    of it, blocks that no prompt of the log begins with under the new template
    num_lost_tokens       what the requests after it would have hit, had the new template served all
                          along, less what they hit: tokens that are computed once more
    num_hit_tokens_after  what they hit; num_requests_after of them
    num_requests_until_warm  requests after the roll-out until the last one that loses something
    lost_flops, lost_s    what computing the lost tokens takes; a range of GPU seconds
    """

    first_request: int
    num_requests_after: int
    num_resident_tokens: int
    num_useless_tokens: int
    num_hit_tokens_after: int
    num_lost_tokens: int
    num_requests_until_warm: int
    lost_flops: float | None
    lost_s: tuple[float, float] | None

    @property
    def useless_share(self) -> float | None:
        """Return the share of the resident tokens that is useless; None for an empty pool."""
        if not self.num_resident_tokens:
            return None
        return self.num_useless_tokens / self.num_resident_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChange:
    """A log under both templates.

    num_unaffected   requests whose prompt no server template makes (text, ids, a template of their
                     own)
    num_same         chats whose prompt stays
    first_changed    (position of the first differing token, chats), the most frequent first
    changed_at       (what stands at the first difference, chats), the most frequent first
    num_prompt_tokens_kept  tokens of the old prompts before their first difference, if any
    refused_now, rendered_now  chats by the kind of refusal
    before, after, roll_out    over the requests that both templates render
    """

    num_requests: int
    num_unaffected: int
    num_same: int
    num_changed: int
    first_changed: tuple[tuple[int, int], ...]
    changed_at: tuple[tuple[str, int], ...]
    num_prompt_tokens_kept: int
    refused_now: Mapping[str, int]
    rendered_now: Mapping[str, int]
    num_refused_by_both: int
    block_size: int
    capacity_blocks: int | None
    before: SteadyState
    after: SteadyState
    roll_out: RollOut


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateDiff:
    """The result of `template diff`; `log` is None without a log."""

    version: str
    old_paths: tuple[str, ...]
    new_paths: tuple[str, ...]
    log_paths: tuple[str, ...]
    unit: Unit
    prompts: tuple[PromptChange, ...]
    answers: tuple[AnswerChange, ...]
    findings: tuple[Finding, ...]
    log: LogChange | None
    notes: tuple[str, ...]
    incomplete: str | None = None
