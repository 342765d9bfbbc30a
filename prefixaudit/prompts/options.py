"""How prompts are replayed."""

from __future__ import annotations

from dataclasses import dataclass

from prefixaudit.prompts.server_rules import AS_SENT, ServerRules


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How prompts are replayed.

    chat_template   the template's text, instead of the model folder's
    time_zone       the server's zone (IANA name), for templates that print the date
    assumed_arrival_s  Unix time that templates see where a request's arrival isn't known;
                    None: such requests are skipped if their template asks
    rules           what the server does to messages before rendering
    encode_generated  tokenize the answers' texts too
    check_share     share of the text that is encoded plainly as well, as proof
    cache_bytes     memory for parts of texts that were encoded before; 0: encode all plainly
    time_limit_s    CPU seconds that one rendering may take
    max_characters  longest rendering
    """

    chat_template: str | None = None
    time_zone: str = "UTC"
    assumed_arrival_s: float | None = None
    rules: ServerRules = AS_SENT
    encode_generated: bool = True
    check_share: float = 0.003
    cache_bytes: int = 256 << 20
    time_limit_s: float = 5.0
    max_characters: int = 64 << 20
