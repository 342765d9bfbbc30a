"""Reads vLLM's text log: long messages are joined, those of requests told from the engine's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prefixaudit.core.request import Skipped
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import ReadItem
from prefixaudit.logs._json_lines import RecordError
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._text_lines import TextLine
from prefixaudit.logs._vllm_engine import VllmEngine
from prefixaudit.logs._vllm_joining import Joiner
from prefixaudit.logs._vllm_lines import Message, joined, messages
from prefixaudit.logs._vllm_requests import MARKERS, said_in

_MAX_PARTS: Final = 10_000
_CUT: Final = RecordError("cut-line", "the line of a request ends in its middle: data is lost")


def read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    """Yield the requests of a log of vLLM's, and hand on what its engine says."""
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
