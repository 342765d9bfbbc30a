"""vLLM's text log, 0.6 to 0.33: requests out of one to four lines each, and what the engine says.

A request is one record, whatever lines it has: `Received request`, its DEBUG details, the body
that the client sent, the answer. All other lines are no records. Nothing in these lines says whose
request it was; only the body has a salt. See `_vllm_reading` for what becomes of the lines,
`_vllm_requests` for those of requests, `_cut_prompts` for prompts that the server cut,
`_vllm_lines` for times.
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import LogFormat, ReadItem, Sample
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._text_lines import start_of
from prefixaudit.logs._vllm_lines import PREFIX, is_vllm_record


def _recognise(sample: Sample) -> float:
    if any(PREFIX.search(start_of(line, 700)) for line in sample.lines):
        return 0.95
    share = sample.share_of_records(
        lambda record: is_vllm_record(record) and str(record.get("name", "")).startswith("vllm")
    )
    return 0.6 + 0.35 * share if share else 0.0


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    # Every log is shown to every format; what reads this one is needed by few.
    from prefixaudit.logs._vllm_reading import read

    return read(file, options)


FORMAT = LogFormat(
    title="vLLM's text log: received requests, bodies, answers",
    fields=(
        "request_id",
        "arrival_s",
        "endpoint",
        "prompt",
        "prompt_token_ids",
        "messages",
        "generated",
        "lora_name",
        "lora_path",
        "lora_revision",
        "prompt_embeds",
        "cache_salt",
        "model",
        "readings",
    ),
    recognise=_recognise,
    read=_read,
)
