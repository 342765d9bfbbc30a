"""Replays chat templates and tokenizers exactly as the serving stack does.

`Replayer.replay` turns a request into a prompt, or says why it can't; `replay_many` does it in
several processes, in order. Only this package imports transformers, tokenizers and jinja2, and
only inside the functions that need them.

replayer         from requests to prompts; parallel: in several processes; statistics: what was done
rendering        from prompts to the text that is tokenized; refusal: why there is none
options          how it is all done; server_rules: how a server prepares messages
preparing        what that does to them before the template sees them
model_folder     finds tokenizer, chat templates and special tokens
templates        renders; template_syntax: what a template's syntax tree shows
watchdog, limits  bounds on the time and the size of what a template builds
media            out of the messages and into the ids; image_rules, image_sizes: their tokens
encoder          text to ids, the same text only once; segment_cache: what it keeps
words            new text word by word; token_lengths: to tell a text's ids apart by words
boundaries       where a text may be cut; cutting: cuts; certain_pairs, pre_tokenizers: between
                 which characters; patterns, pattern_reading: what regular expressions join
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixaudit.lazy_names import lazy_names

if TYPE_CHECKING:
    from prefixaudit.prompts.options import ReplayOptions as ReplayOptions
    from prefixaudit.prompts.parallel import ReplayRun as ReplayRun
    from prefixaudit.prompts.parallel import replay_many as replay_many
    from prefixaudit.prompts.refusal import Refusal as Refusal
    from prefixaudit.prompts.rendering import Rendered as Rendered
    from prefixaudit.prompts.replayer import Replayer as Replayer
    from prefixaudit.prompts.server_rules import AS_SENT as AS_SENT
    from prefixaudit.prompts.server_rules import SGLANG as SGLANG
    from prefixaudit.prompts.server_rules import VLLM as VLLM
    from prefixaudit.prompts.server_rules import ServerRules as ServerRules
    from prefixaudit.prompts.server_rules import rules_of as rules_of
    from prefixaudit.prompts.statistics import ReplayStatistics as ReplayStatistics
    from prefixaudit.prompts.template_syntax import SyntaxUse as SyntaxUse
    from prefixaudit.prompts.template_syntax import TemplateSyntax as TemplateSyntax
    from prefixaudit.prompts.templates import TemplateFacts as TemplateFacts
    from prefixaudit.prompts.templates import TemplateRenderer as TemplateRenderer

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

__getattr__ = lazy_names(
    __name__,
    {
        "AS_SENT": "server_rules",
        "SGLANG": "server_rules",
        "VLLM": "server_rules",
        "Refusal": "refusal",
        "Rendered": "rendering",
        "ReplayOptions": "options",
        "ReplayRun": "parallel",
        "ReplayStatistics": "statistics",
        "Replayer": "replayer",
        "ServerRules": "server_rules",
        "SyntaxUse": "template_syntax",
        "TemplateFacts": "templates",
        "TemplateRenderer": "templates",
        "TemplateSyntax": "template_syntax",
        "replay_many": "parallel",
        "rules_of": "server_rules",
    },
)
