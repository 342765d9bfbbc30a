"""Chat templates under test: is a template prefix-stable, and what does a new one invalidate?

conversations  the chats that every template is rendered with
probing        one model's templates, rendered as its server does, and prompts compared
growth, sharing, sight, tokens  the questions, by group
rules          the faults that answers show
checking       `check_templates`: all questions of a template
diffing        `diff_templates`: two templates on the chats, and on a log
"""

from prefixaudit.templates.checking import as_gate, check_templates
from prefixaudit.templates.probing import load_source
from prefixaudit.templates.rules import TEMPLATE_RULES

__all__ = ["TEMPLATE_RULES", "as_gate", "check_templates", "load_source"]
