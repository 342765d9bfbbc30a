"""OpenAI Batch files: the input's requests, and the output's answers joined to them by custom_id.

    input    {"custom_id": …, "method": "POST", "url": "/v1/…", "body": {…}}
    output   {"id": …, "custom_id": …, "response": {"status_code": 200, "body": {…}} or null,
              "error": {"code": …, "message": …} or null}

Name both files to have them joined; their order doesn't matter, within or between them. vLLM's
batch runner reads and writes the same shape. A batch has no times: its requests stay in the
input's order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefixaudit.logs._format import LogFormat, Sample
from prefixaudit.logs._gateway import BODY_FIELDS, read_bodies


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(lambda record: _is_input(record) or _is_output(record))
    return 0.5 + share / 2 if share else 0.0


def _is_input(record: Mapping[str, Any]) -> bool:
    return "custom_id" in record and "body" in record


def _is_output(record: Mapping[str, Any]) -> bool:
    return "custom_id" in record and "body" not in record and "response" in record


FORMAT = LogFormat(
    title="OpenAI Batch input and output, joined by custom_id",
    fields=tuple(name for name in BODY_FIELDS if name not in ("arrival_s", "headers", "tenant")),
    recognise=_recognise,
    read=read_bodies,
    looks_back=lambda sample: sample.share_of_records(_is_output) > 0,
)
