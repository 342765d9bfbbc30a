"""OpenAI-like requests: bodies of chat and completions, bare or inside a gateway's record.

    bare      {"model": …, "messages": […]}
    gateway   {"timestamp": …, "request_id": …, "path": "/v1/…", "status": 200, "headers": {…},
               "body": {…}, "response": {…}}

A gateway's log may mix all of the APIs: a record is read by its path, else by its shape. See
`prefixaudit.logs._gateway` for the names that are taken.
"""

from __future__ import annotations

from prefixaudit.logs._format import LogFormat, Sample
from prefixaudit.logs._gateway import BODY_FIELDS, has_body, is_answer, read_bodies


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(has_body)
    return 0.4 + share / 2 if share else 0.0


FORMAT = LogFormat(
    title="OpenAI chat and completions bodies: bare or in a gateway's records",
    fields=BODY_FIELDS,
    recognise=_recognise,
    read=read_bodies,
    looks_back=lambda sample: sample.share_of_records(is_answer) > 0,
)
