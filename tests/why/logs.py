"""Small logs for tests of `why`: chats through a byte-level tokenizer, one byte is one token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefixaudit.analysis import AnalysisOptions, analyse
from prefixaudit.core.report import Report
from prefixaudit.core.why import UnstableCause, WhyFacts
from prefixaudit.deployment import Overrides, load_deployment

CASES = Path(__file__).parent.parent / "data" / "cases"
SYSTEM = (
    "You are the scheduling clerk of the Port of Lindhaven. You keep berth plans, tide windows "
    "and pilot rosters. Answer with the berth number first, then the time in harbour local time."
)
TEMPLATE = (
    "{{ bos_token }}{% if tools %}{{ '<|tools|>' }}{% for t in tools %}{{ t | tojson ~ '\n' }}"
    "{% endfor %}{{ '<|/tools|>' }}{% endif %}{% for m in messages %}{{ '<|' ~ m.role ~ '|>' ~ "
    "(m.content or '') ~ '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def case_folder(name: str) -> Path:
    """Return the folder of a case by its number (`B001`)."""
    [folder] = CASES.glob(f"{name}-*")
    return folder


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def body(messages: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"model": "harbor-8b-chat", "messages": list(messages), **more}


def write_log(folder: Path, bodies: Sequence[dict[str, Any]], **fields: Sequence[Any]) -> Path:
    """Write a gateway log, a minute between two requests; `fields` are columns of the records."""
    path = folder / "requests.jsonl"
    lines = []
    for number, content in enumerate(bodies):
        record = {
            "timestamp": f"2026-03-02T10:{number:02d}:00.000Z",
            "request_id": f"req-{number}",
            "path": "/v1/chat/completions" if "messages" in content else "/v1/completions",
            "status": 200,
            "body": content,
            **{name: column[number] for name, column in fields.items()},
        }
        lines.append(json.dumps(record))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def report_of(
    log: Path, *, model: Path | None = None, template: str | None = None, **options: Any
) -> Report:
    """Analyse a log in 16-token blocks with B001's tokenizer and template, or the given ones."""
    chat_template = None
    if template is not None:
        chat_template = log.parent / "template.jinja"
        chat_template.write_text(template, "utf-8")
    overrides = Overrides(
        model_dir=model or case_folder("B001"),
        block_size=16,
        chat_template=chat_template,
        capacity_blocks=options.pop("capacity_blocks", None),
        engine=options.pop("engine", None),
    )
    deployment = load_deployment(options.pop("deployment", None), overrides)
    how = AnalysisOptions(audit=False, **options)
    return analyse([str(log)], deployment, how)


def why_of(report: Report) -> WhyFacts:
    assert report.why is not None
    return report.why


def only_cause(report: Report) -> UnstableCause:
    """Return the one cause of a log that has one."""
    causes = why_of(report).causes
    assert len(causes) == 1, [(cause.kind, cause.place) for cause in causes]
    return causes[0]


def kinds(report: Report) -> list[str]:
    return [cause.kind for cause in why_of(report).causes]


def hits(report: Report) -> list[int]:
    return [int(number) for number in report.rows.lookups.num_cached_tokens]
