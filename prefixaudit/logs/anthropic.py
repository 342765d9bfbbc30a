"""Anthropic Messages: bodies bare or in a gateway's record, as vLLM and SGLang read them.

Input tokens leave out what was read from the cache and written to it: the prompt is the sum of
`input_tokens`, `cache_read_input_tokens` and `cache_creation_input_tokens`; what was written is no
hit. What becomes of system blocks, tools and tool results: `prefixaudit.logs._messages_body`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefixaudit.logs._format import LogFormat, Sample
from prefixaudit.logs._gateway import (
    BODY_FIELDS,
    body_of,
    endpoint_of_record,
    is_answer,
    read_bodies,
)
from prefixaudit.logs._openai_body import MESSAGES


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(_is_messages_record)
    return 0.45 + share / 2 if share else 0.0


def _is_messages_record(record: Mapping[str, Any]) -> bool:
    body = body_of(record)
    return (
        body is not None
        and isinstance(body.get("messages"), list)
        and endpoint_of_record(record) == MESSAGES
    )


FORMAT = LogFormat(
    title="Anthropic Messages bodies: bare or in a gateway's records",
    fields=BODY_FIELDS,
    recognise=_recognise,
    read=read_bodies,
    looks_back=lambda sample: sample.share_of_records(is_answer) > 0,
)
