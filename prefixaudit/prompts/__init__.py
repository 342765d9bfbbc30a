"""Replays chat templates and tokenizers exactly as the serving stack does.

`Replayer.replay` turns a request into a prompt, or says why it can't; `replay_many` does it in
several processes, in order. Only this package imports transformers, tokenizers and jinja2, and
only inside the functions that need them.
"""

from prefixaudit.prompts.parallel import ReplayRun, replay_many
from prefixaudit.prompts.replayer import Rendered, Replayer, ReplayOptions
from prefixaudit.prompts.server_rules import AS_SENT, SGLANG, VLLM, ServerRules
from prefixaudit.prompts.statistics import ReplayStatistics
from prefixaudit.prompts.template_syntax import SyntaxUse, TemplateSyntax
from prefixaudit.prompts.templates import Refusal, TemplateFacts, TemplateRenderer

__all__ = [
    "AS_SENT",
    "SGLANG",
    "VLLM",
    "Refusal",
    "Rendered",
    "ReplayOptions",
    "ReplayRun",
    "ReplayStatistics",
    "Replayer",
    "ServerRules",
    "SyntaxUse",
    "TemplateFacts",
    "TemplateRenderer",
    "TemplateSyntax",
    "replay_many",
]
