"""Short templates for tests, and what is said of them."""

from __future__ import annotations

from pathlib import Path

from prefixaudit.core.template import TemplateAnswer, TemplateReport
from prefixaudit.templates import check_templates, load_source

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "tests" / "data" / "templates"
SAMPLE_MODEL = ROOT / "samples" / "support-chat" / "model"

# Grows at its end, shows everything, takes every form.
STABLE = """\
{{- bos_token }}
{%- if tools %}{{ '<|tools|>' ~ (tools | tojson) }}{% endif %}
{%- for message in messages %}
{{- '<|' ~ message.role ~ '|>' }}
{%- if message.reasoning_content %}{{ '<t>' ~ message.reasoning_content ~ '</t>' }}{% endif %}
{%- if message.content is string %}{{ message.content }}
{%- else %}
{%- for part in message.content or [] %}{{ part.text or '<|image|>' }}{% endfor %}
{%- endif %}
{%- for call in message.tool_calls or [] %}{{ '<|call|>' ~ (call.function | tojson) }}{% endfor %}
{{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}
"""


def checked(
    folder: Path, template: str, *, server: str | None = None, model: Path | None = None
) -> TemplateReport:
    """Check a template given as text."""
    path = folder / "template.jinja"
    path.write_text(template, encoding="utf-8")
    return check_templates(load_source(path, model), server=server)


def answer(report: TemplateReport, name: str) -> TemplateAnswer:
    [found] = [item for item in report.answers if item.name == name]
    return found


def rules(report: TemplateReport) -> set[str]:
    return {finding.rule.removeprefix("template-") for finding in report.findings}
