"""`check_templates`: asks all questions of one model's templates; faults become findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import prefixaudit
from prefixaudit.core.finding import Finding, Location, Observation, Severity
from prefixaudit.core.gate import GateFinding, GateReport
from prefixaudit.core.template import TemplateAnswer, TemplateHint, TemplateReport
from prefixaudit.errors import UsageError, unknown_name
from prefixaudit.prompts import AS_SENT, SGLANG, VLLM, Refusal, ServerRules, rules_of
from prefixaudit.prompts.template_syntax import UseKind
from prefixaudit.templates import conversations as say
from prefixaudit.templates.conversations import Message
from prefixaudit.templates.faults import Seen
from prefixaudit.templates.growth import growth_questions, takes_arguments_as_text
from prefixaudit.templates.probing import Prober, TemplateSource
from prefixaudit.templates.rules import TEMPLATE_RULES
from prefixaudit.templates.sharing import sharing_questions
from prefixaudit.templates.sight import sight_questions
from prefixaudit.templates.tokens import token_questions

SERVER_RULES: Final[Mapping[str, ServerRules]] = {
    "as-sent": AS_SENT,
    "vllm": VLLM,
    "sglang": SGLANG,
}

# Where in the template a fault of this kind most often comes from.
_LINES_OF: Final[Mapping[str, tuple[UseKind, ...]]] = {
    "template-clock-each-second": ("clock",),
    "template-clock-each-day": ("clock",),
    "template-random": ("random",),
    "template-needs-forbidden": ("forbidden",),
    "template-changes-answers": ("trimmed-content",),
    "template-moves-system-text": ("loop-end", "last-message"),
    "template-moves-tools": ("last-message", "loop-end", "looked-for-ahead"),
    "template-drops-reasoning": ("looked-for-ahead", "cut-content", "loop-end"),
    "template-rewrites-history": ("loop-end", "last-message", "looked-for-ahead"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """All answers of one model's templates, before they are judged."""

    prober: Prober
    seen: tuple[Seen, ...]


def rules_named(name: str | None) -> tuple[str, ServerRules]:
    """Return a server's rules by its engine's name (`vllm`, `vllm@0.11.0`); None is as sent.

    Raises UsageError for an engine whose server isn't known.
    """
    if name is None:
        return "as-sent", AS_SENT
    engine, _, version = name.partition("@")
    if engine not in SERVER_RULES:
        raise UsageError(unknown_name("server", engine, SERVER_RULES))
    return engine, rules_of(engine, version or None)


def ask_all(prober: Prober) -> Checked:
    """Ask all questions."""
    opening: list[Message] = [say.system()]
    try:
        prober.text([*opening, say.user(0)])
    except Refusal:
        try:
            prober.text([say.user(0)])
        except Refusal:
            pass  # not the system message's fault: the answers say why
        else:
            opening = []
    as_text = takes_arguments_as_text(prober, opening)
    seen = (
        *growth_questions(prober, opening),
        *sharing_questions(prober, opening),
        *sight_questions(prober, opening, as_text=as_text),
        *token_questions(prober, opening),
    )
    return Checked(prober=prober, seen=seen)


def check_templates(
    source: TemplateSource,
    *,
    server: str | None = None,
    variables: Mapping[str, Any] | None = None,
) -> TemplateReport:
    """Render the fixed conversations and return the table, findings and hints.

    `variables` are chat_template_kwargs for every chat. The report is incomplete where no chat at
    all could be rendered. Raises ConfigurationError for a template that isn't valid, UsageError for
    an unknown server.
    """
    name, rules = rules_named(server)
    prober = Prober(source, rules, variables=variables)
    checked = ask_all(prober)
    answers = tuple(item.answer for item in checked.seen)
    hints, free = hints_of(prober)
    incomplete = None
    if all(answer.verdict in ("refused", "not-asked") for answer in answers):
        incomplete = "the template renders none of the chats: see the table for its errors"
    return TemplateReport(
        version=prefixaudit.__version__,
        paths=source.paths,
        unit=prober.unit,
        tokenizer=None if source.tokenizer is None else str(source.tokenizer),
        rules=name,
        answers=answers,
        hints=hints,
        variables=free,
        findings=judged(checked, hints),
        notes=tuple(_notes(prober, answers)),
        incomplete=incomplete,
    )


def as_gate(report: TemplateReport, fail_on: Severity | None) -> GateReport:
    """Return the findings as a gate that fails at or above a severity (None: never)."""
    return GateReport(
        version=report.version,
        deployment_paths=report.paths,
        log_paths=(),
        rules=tuple(TEMPLATE_RULES.values()),
        fail_on=fail_on,
        findings=tuple(
            GateFinding(
                finding=finding,
                status="new",
                fails=fail_on is not None and finding.severity >= fail_on,
            )
            for finding in report.findings
        ),
        notes=report.notes,
        incomplete=report.incomplete,
        title="Chat template check",
    )


def judged(checked: Checked, hints: Sequence[TemplateHint]) -> tuple[Finding, ...]:
    """Return the faults of a template as findings, one a rule, most severe first."""
    prober = checked.prober
    by_rule: dict[str, list[TemplateAnswer]] = {}
    for item in checked.seen:
        for rule in item.rules:
            by_rule.setdefault(rule, []).append(item.answer)
    if any(hint.kind == "random" for hint in hints):
        by_rule["template-random"] = []
        by_rule.pop("template-fails", None)
    found = [_finding(prober, name, answers, hints) for name, answers in by_rule.items()]
    return tuple(sorted(found, key=lambda finding: (-finding.severity, finding.rule)))


def _finding(
    prober: Prober, name: str, answers: Sequence[TemplateAnswer], hints: Sequence[TemplateHint]
) -> Finding:
    rule = TEMPLATE_RULES[name]
    lines = [hint for hint in hints if hint.kind in _LINES_OF.get(name, ())]
    wanted = _LINES_OF.get(name, ())
    lines.sort(key=lambda hint: (wanted.index(hint.kind), hint.line))
    place = (
        Location(path=lines[0].path, line=lines[0].line)
        if lines
        else Location(path=prober.source.paths[0])
    )
    return Finding(
        rule=name,
        title=rule.title,
        severity=rule.severity,
        severity_if_true=rule.severity,
        confidence=rule.confidence,
        observation=Observation(
            subject="chat template",
            message=_message(prober, answers) or rule.title,
            location=place,
            num_tokens=0
            if prober.unit != "tokens"
            else max((answer.num_lost or 0 for answer in answers), default=0),
            facts={"questions": [answer.name for answer in answers]},
        ),
        remediation=rule.remediation,
    )


def _message(prober: Prober, answers: Sequence[TemplateAnswer]) -> str:
    if not answers:
        return ""
    worst = max(answers, key=lambda answer: answer.num_lost or 0)
    where = "; ".join(dict.fromkeys(answer.question for answer in answers))
    about = "; ".join(dict.fromkeys(answer.about for answer in answers if answer.about))
    lost = ""
    if worst.num_lost:
        lost = f" (up to {worst.num_lost:,} of {worst.num_prompt:,} {prober.unit})"
    return f"{about}{lost}: {where}" if about else f"{where}{lost}"


def hints_of(prober: Prober) -> tuple[tuple[TemplateHint, ...], tuple[str, ...]]:
    """Return the places that could make prompts unstable, and the variables callers may set."""
    hints: list[TemplateHint] = []
    variables: set[str] = set()
    files = prober.source.files
    for name, template in files.templates.items():
        syntax = prober.renderer.syntax(template)
        path = str(files.sources[name])
        # A template inside a JSON file has no lines of its own there.
        has_lines = Path(path).suffix != ".json"
        hints += [
            TemplateHint(kind=use.kind, name=use.name, path=path, line=use.line if has_lines else 0)
            for use in syntax.uses
        ]
        variables.update(syntax.variables)
    return tuple(hints), tuple(sorted(variables))


def _notes(prober: Prober, answers: Sequence[TemplateAnswer]) -> Iterator[str]:
    source = prober.source
    if source.tokenizer is None:
        yield (
            "no tokenizer: lengths are in characters, and tokens that join at a seam aren't seen; "
            "give a model folder with --model DIR"
        )
    if source.assumes_tokens:
        yield "no special tokens are known: <s> and </s> were assumed for bos_token and eos_token"
    roles = {answer.name: answer.verdict for answer in answers}
    if roles.get("system-role") == "refused" and roles.get("plain-turns") != "refused":
        yield "the template refuses system messages: the conversations have none"
