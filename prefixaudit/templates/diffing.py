"""`diff_templates`: what a new template changes, on our conversations and on a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import prefixaudit
from prefixaudit.analysis import AnalysisOptions
from prefixaudit.analysis.pipeline import replay_options_for
from prefixaudit.core.finding import Finding, Location, Observation, Severity
from prefixaudit.core.gate import GateFinding, GateReport
from prefixaudit.core.template import AnswerChange, LogChange, PromptChange, TemplateDiff
from prefixaudit.deployment import Deployment
from prefixaudit.errors import UsageError
from prefixaudit.prompts import Refusal, ServerRules
from prefixaudit.templates import conversations as say
from prefixaudit.templates.checking import Checked, ask_all, hints_of, judged
from prefixaudit.templates.growth import takes_arguments_as_text
from prefixaudit.templates.probing import Prober, TemplateSource, with_model_of
from prefixaudit.templates.rules import TEMPLATE_RULES

if TYPE_CHECKING:
    from prefixaudit.analysis import Progress

# A hit rate that falls by less than this is noise of the log.
_DROP = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """How a log is read and when the new template takes over.

    `roll_out_share` of its requests are served by the old one; `gpu` gives seconds.
    """

    analysis: AnalysisOptions = field(default_factory=AnalysisOptions)
    roll_out_share: float = 0.5
    gpu: str | None = None
    tensor_parallel: int = 1


def diff_templates(
    old: TemplateSource,
    new: TemplateSource,
    *,
    deployment: Deployment,
    log_paths: Sequence[str] = (),
    options: DiffOptions | None = None,
    progress: Progress | None = None,
) -> TemplateDiff:
    """Compare two templates, both rendered with one tokenizer: that of `new`, else of `old`.

    Raises ConfigurationError for a template that isn't valid, UsageError for a log without a
    tokenizer or a GPU without a model, IncompleteError for a log that can't be read.
    """
    options = options or DiffOptions()
    rules = replay_options_for(deployment).rules
    # One tokenizer for both, or lengths and positions wouldn't compare.
    if new.tokenizer is None and old.tokenizer is not None:
        new = with_model_of(new, old)
    else:
        old = with_model_of(old, new)
    before, after = _probers(old, new, rules)
    old_answers, new_answers = ask_all(before), ask_all(after)
    log: LogChange | None = None
    notes: list[str] = []
    incomplete = None
    if log_paths:
        from prefixaudit.templates.rolling_out import compare_on_log

        if new.tokenizer is None:
            raise UsageError(
                "a log can't be compared without a tokenizer", hint="give one with --model DIR"
            )
        found = compare_on_log(
            old, new, deployment=deployment, log_paths=log_paths, options=options, progress=progress
        )
        log, incomplete = found.log, found.incomplete
        notes += found.notes
    elif new.tokenizer is None:
        notes.append("no tokenizer: lengths are in characters; give a model folder with --model")
    known = {finding.rule for finding in judged(old_answers, hints_of(before)[0])}
    findings = [
        finding for finding in judged(new_answers, hints_of(after)[0]) if finding.rule not in known
    ]
    if log is not None:
        findings += _log_findings(log, new)
    return TemplateDiff(
        version=prefixaudit.__version__,
        old_paths=old.paths,
        new_paths=new.paths,
        log_paths=tuple(log_paths),
        unit=after.unit,
        prompts=tuple(_prompts(before, after)),
        answers=tuple(_answers(old_answers, new_answers)),
        findings=tuple(sorted(findings, key=lambda finding: (-finding.severity, finding.rule))),
        log=log,
        notes=tuple(notes),
        incomplete=incomplete,
    )


def diff_as_gate(diff: TemplateDiff, fail_on: Severity | None) -> GateReport:
    """Return the findings as a gate that fails at or above a severity (None: never)."""
    return GateReport(
        version=diff.version,
        deployment_paths=diff.new_paths,
        log_paths=diff.log_paths,
        rules=tuple(TEMPLATE_RULES.values()),
        fail_on=fail_on,
        findings=tuple(
            GateFinding(
                finding=finding,
                status="new",
                fails=fail_on is not None and finding.severity >= fail_on,
            )
            for finding in diff.findings
        ),
        notes=diff.notes,
        incomplete=diff.incomplete,
        title="Chat template change",
    )


def _probers(old: TemplateSource, new: TemplateSource, rules: ServerRules) -> tuple[Prober, Prober]:
    after = Prober(new, rules)
    return Prober(old, rules, renderer=after.renderer, encoder=after.encoder), after


def _prompts(before: Prober, after: Prober) -> Iterator[PromptChange]:
    """Render each conversation with both templates."""
    opening = [say.system()]
    as_text = takes_arguments_as_text(before, opening)
    for name, (chat, has_tools, variables) in say.catalogue(arguments_as_text=as_text).items():
        texts: list[str | None] = []
        for prober in (before, after):
            try:
                texts.append(
                    prober.text(chat, tools=say.TOOLS if has_tools else None, variables=variables)
                )
            except Refusal:
                texts.append(None)
        yield _prompt_change(after, name, *texts)


def _prompt_change(prober: Prober, name: str, old: str | None, new: str | None) -> PromptChange:
    lengths = [None if text is None else prober.length(text) for text in (old, new)]
    if old is None or new is None:
        kind = "refused-by-both" if old is new else "refused-now" if new is None else "rendered-now"
        return PromptChange(
            name=name,
            kind=kind,  # type: ignore[arg-type]
            num_before=lengths[0],
            num_after=lengths[1],
            first_changed=None,
        )
    if old == new:
        return PromptChange(
            name=name,
            kind="same",
            num_before=lengths[0],
            num_after=lengths[1],
            first_changed=None,
        )
    found = prober.compare(old, new)
    start = max(0, found.character - 24)
    return PromptChange(
        name=name,
        kind="changed",
        num_before=lengths[0],
        num_after=lengths[1],
        first_changed=found.num_prompt - found.num_lost,
        shown=(old[start : start + 72], new[start : start + 72]),
    )


def _answers(old: Checked, new: Checked) -> Iterator[AnswerChange]:
    before = {item.answer.name: item.answer for item in old.seen}
    for item in new.seen:
        after = item.answer
        was = before.get(after.name)
        if was is None or (was.verdict, was.num_lost) == (after.verdict, after.num_lost):
            continue
        yield AnswerChange(
            name=after.name,
            question=after.question,
            before=was.verdict,
            after=after.verdict,
            num_lost_before=was.num_lost,
            num_lost_after=after.num_lost,
        )


def _log_findings(log: LogChange, new: TemplateSource) -> Iterator[Finding]:
    refused = sum(log.refused_now.values())
    if refused:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in log.refused_now.items())
        yield _finding("template-change-refuses-requests", f"{refused:,} requests ({kinds})", new)
    before, after = log.before.token_hit_rate, log.after.token_hit_rate
    if before is not None and after is not None and after < before - _DROP:
        message = f"token hit rate {100 * before:.2f} % before, {100 * after:.2f} % after"
        yield _finding("template-change-lowers-hits", message, new)


def _finding(name: str, message: str, source: TemplateSource) -> Finding:
    rule = TEMPLATE_RULES[name]
    return Finding(
        rule=name,
        title=rule.title,
        severity=rule.severity,
        severity_if_true=rule.severity,
        confidence=rule.confidence,
        observation=Observation(
            subject="chat template", message=message, location=Location(path=source.paths[0])
        ),
        remediation=rule.remediation,
    )
