"""Replays chat templates and tokenizers exactly as the serving stack does.

`Replayer.replay` turns a request into a prompt, or says why it can't; `replay_many` does it in
several processes, in order. Only this package imports transformers, tokenizers and jinja2, and
only inside the functions that need them.

replayer         from requests to prompts; parallel: in several processes; statistics: what was done
rendering        from prompts to the text that is tokenized; options: how it is all done
model_folder     finds tokenizer, chat templates and special tokens
server_rules     what a server does to messages before the template sees them
templates        renders; template_syntax: what a template's syntax tree shows
watchdog, limits  bounds on the time and the size of what a template builds
media            out of the messages and into the ids; image_rules, image_sizes: their tokens
encoder          text to ids, the same text only once; segment_cache: what it keeps
boundaries       where a text may be cut; patterns: what a pre-tokenizer joins; cutting: cuts
"""

from prefixaudit.prompts.options import ReplayOptions
from prefixaudit.prompts.parallel import ReplayRun, replay_many
from prefixaudit.prompts.rendering import Rendered
from prefixaudit.prompts.replayer import Replayer
from prefixaudit.prompts.server_rules import AS_SENT, SGLANG, VLLM, ServerRules, rules_of
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
    "rules_of",
]
