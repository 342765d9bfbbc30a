"""vLLM's text log, 0.6 to 0.33: requests out of one to four lines each, and what the engine says.

A request is one record, whatever lines it has: `Received request`, its DEBUG details, the body
that the client sent, the answer. All other lines are no records. Nothing in these lines says whose
request it was; only the body has a salt. See `_vllm_requests` for the lines, `_cut_prompts` for
prompts that the server cut, `_vllm_lines` for times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prefixaudit.core.request import Skipped
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import RecordError
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._text_lines import TextLine, start_of
from prefixaudit.logs._vllm_engine import VllmEngine
from prefixaudit.logs._vllm_joining import Joiner
from prefixaudit.logs._vllm_lines import PREFIX, Message, is_vllm_record, joined, messages
from prefixaudit.logs._vllm_requests import MARKERS, said_in

_MAX_PARTS: Final = 10_000


def _recognise(sample: Sample) -> float:
    if any(PREFIX.search(start_of(line, 700)) for line in sample.lines):
        return 0.95
    share = sample.share_of_records(
        lambda record: is_vllm_record(record) and str(record.get("name", "")).startswith("vllm")
    )
    return 0.6 + 0.35 * share if share else 0.0


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    engine = VllmEngine(file)
    joiner = Joiner(file, options)
    open_message: Message | None = None
    num_parts = 0
    for item in messages(file, options.year):
        if isinstance(item, Skipped):
            yield item
            continue
        if open_message is not None:
            if isinstance(item, Message) and item.prefix == open_message.prefix:
                num_parts += 1
                whole = joined(open_message, item)
                open_message = None
                file.num_other_lines += 1
                reply = _taken(joiner, whole)
                if isinstance(reply, RecordError):
                    if whole.goes_on and num_parts < _MAX_PARTS:
                        open_message = whole
                    else:
                        yield joiner.skipped(whole.line, reply, is_tail=whole.is_tail)
                yield from joiner.ready()
                continue
            yield joiner.skipped(open_message.line, _CUT, is_tail=False)
            open_message = None
        if isinstance(item, TextLine):
            if MARKERS.search(item.text):
                reason = "the line speaks of a request, but it is damaged: it has no prefix"
                yield joiner.skipped(
                    item.number, RecordError("damaged-line", reason), is_tail=item.is_tail
                )
            else:
                file.num_other_lines += 1
            continue
        reply = _taken(joiner, item)
        if isinstance(reply, RecordError):
            if item.goes_on and reply.kind == "cut-line":
                open_message, num_parts = item, 1
            else:
                yield joiner.skipped(item.line, reply, is_tail=item.is_tail)
        elif not reply:
            file.num_other_lines += 1
            joiner.declare(item.text)
            engine.take(item)
        yield from joiner.ready()
    if open_message is not None:
        yield joiner.skipped(open_message.line, _CUT, is_tail=open_message.is_tail)
    yield from joiner.rest()


_CUT: Final = RecordError("cut-line", "the line of a request ends in its middle: data is lost")


def _taken(joiner: Joiner, message: Message) -> bool | RecordError:
    """Say whether a message was one about a request, and hand it on; or what is wrong with it."""
    try:
        said = said_in(message.text)
        if said is None:
            if _is_requests_logger(message.prefix) and MARKERS.search(message.text):
                return RecordError("damaged-line", "the line speaks of a request, but is damaged")
            return False
        if not message.is_text:
            return RecordError("invalid-utf8", "the line of a request has bytes that are no UTF-8")
        joiner.take(message, said)
    except RecordError as error:
        return error
    return True


def _is_requests_logger(prefix: str) -> bool:
    return "[logger.py:" in prefix or "request_logger.py:" in prefix or " logger.py:" in prefix


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
