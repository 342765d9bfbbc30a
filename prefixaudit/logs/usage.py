"""Usage alone: answers or their counts without the requests, one JSON object each.

    {"id": "chatcmpl-7", "object": "chat.completion", "choices": […], "usage": {…}}
    {"request_id": "r7", "usage": {"input_tokens": 104, "cache_read_input_tokens": 800, …}}
    {"rid": "7c1e", "meta_info": {"prompt_tokens": 3, "cached_tokens": 2}}

Where a request of the same id is in another of the logs, it gets the usage; else nothing but what
the server reported can be said of it.
"""

from __future__ import annotations

from prefixaudit.logs._format import LogFormat, Sample
from prefixaudit.logs._gateway import is_answer, read_bodies


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(is_answer)
    return 0.3 + share / 2 if share else 0.0


FORMAT = LogFormat(
    title="answers or usage without the requests, joined to them by id",
    fields=("request_id", "arrival_s", "usage", "generated", "model"),
    recognise=_recognise,
    read=read_bodies,
    looks_back=lambda sample: sample.share_of_records(is_answer) > 0,
)
