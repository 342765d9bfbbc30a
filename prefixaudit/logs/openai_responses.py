"""OpenAI Responses: bodies bare or in a gateway's record, with the responses that they continue.

With `previous_response_id` a record holds the new part only. Its prompt is rebuilt where the
responses that it continues stand in front of it in the logs, with their answers; else, and with
`conversation`, it is on the server only and not replayed (kind `server-history`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefixaudit.logs._format import LogFormat, Sample
from prefixaudit.logs._gateway import BODY_FIELDS, body_of, is_answer, read_bodies
from prefixaudit.logs._responses_body import is_responses_body


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(_is_responses_record)
    return 0.45 + share / 2 if share else 0.0


def _is_responses_record(record: Mapping[str, Any]) -> bool:
    return "custom_id" not in record and is_responses_body(body_of(record))


FORMAT = LogFormat(
    title="OpenAI Responses, with server-side history where the log has it",
    fields=BODY_FIELDS,
    recognise=_recognise,
    read=read_bodies,
    looks_back=lambda sample: sample.share_of_records(is_answer) > 0,
)
