"""Messages of vLLM's text log, 0.6 to 0.33: one a line, or JSON, each with its level and time.

    0.6        INFO 11-29 14:20:01 logger.py:43] message
    0.8+       INFO 11-29 14:20:01 [logger.py:43] message
    0.10.2+    (APIServer pid=9) INFO 11-29 14:20:01 [logger.py:43] message
    0.31+      {"asctime": …, "levelname": …, "name": "vllm…", "message": …}   (JSON formatter)

Times have neither year nor zone nor fraction: without `year` they count from the start of the
log's first year, across New Year too; with a time of a log shipper in front, that one is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from prefixaudit.core.request import Skipped
from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._text_lines import TextLine, outer_time, text_lines
from prefixaudit.logs._times import parse_time

PREFIX: Final = re.compile(
    r"(?:\((?P<process>[^()\n]{1,80}) pid=\d+\) )?"
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"(?P<time>\d\d-\d\d \d\d:\d\d:\d\d) "
    r"(?:\[[^\[\]\n]{1,200}:\d+\]|[^\s\[\]]{1,200}:\d+\])(?: |$)"
)
_FRONT_CHARACTERS: Final = 300
# A leap year, so that 29 February has a place in a log whose year isn't known.
_NO_YEAR: Final = 2024
_HALF_YEAR_S: Final = 183 * 86400.0
NO_YEAR_NOTE: Final = (
    "the log's times have no year and no zone: they count from the start of its first year, "
    "unless --year names it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message. `prefix` is what stood in front of it, the same on each line of a long one."""

    line: int
    text: str
    prefix: str
    time_s: float | Unknown
    process: str | None
    has_date: bool
    is_text: bool
    goes_on: bool
    is_tail: bool


def messages(file: LogFile, year: int | None) -> Iterator[Message | TextLine | Skipped]:
    """Yield the log's messages; lines without a prefix come as TextLine."""
    clock = _Clock(year)
    for line in text_lines(file):
        if isinstance(line, Skipped):
            yield line
            continue
        if line.text.lstrip().startswith("{"):
            message = _json_message(line)
            yield line if message is None else message
            continue
        match = PREFIX.search(line.text, 0, _FRONT_CHARACTERS + 300)
        if match is None or match.start() > _FRONT_CHARACTERS:
            yield line
            continue
        time_s = outer_time(line.text[: match.start()])
        has_date = time_s is not UNKNOWN
        if time_s is UNKNOWN:
            time_s = clock.seconds(match.group("time"))
            has_date = year is not None
            if not has_date:
                file.note(NO_YEAR_NOTE)
        yield Message(
            line=line.number,
            text=line.text[match.end() :],
            prefix=line.text[match.start() : match.end()],
            time_s=time_s,
            process=match.group("process"),
            has_date=has_date,
            is_text=line.is_text,
            goes_on=line.ends_in_return,
            is_tail=line.is_tail,
        )


def joined(first: Message, second: Message) -> Message:
    """Return a message that went on in another line."""
    return replace(
        first,
        text=f"{first.text}\n{second.text}",
        is_text=first.is_text and second.is_text,
        goes_on=second.goes_on,
        is_tail=second.is_tail,
    )


def is_vllm_record(record: Mapping[str, Any]) -> bool:
    """Say whether a JSON object is a line of vLLM's JSON formatter."""
    return (
        isinstance(record.get("message"), str)
        and isinstance(record.get("levelname"), str)
        and "asctime" in record
    )


def _json_message(line: TextLine) -> Message | None:
    try:
        record = orjson.loads(line.text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(record, dict) or not is_vllm_record(record):
        return None
    return Message(
        line=line.number,
        text=record["message"],
        prefix="",
        time_s=parse_time(record["asctime"]),
        process=str(record.get("processName") or "") or None,
        has_date=True,
        is_text=line.is_text,
        goes_on=False,
        is_tail=line.is_tail,
    )


class _Clock:
    """Seconds of times without a year, which follow one another."""

    def __init__(self, year: int | None) -> None:
        self._year = year if year is not None else _NO_YEAR
        self._start_s = (
            0.0 if year is not None else datetime(_NO_YEAR, 1, 1, tzinfo=UTC).timestamp()
        )
        self._last_s: float | None = None

    def seconds(self, text: str) -> float | Unknown:
        seconds = self._in_year(text, self._year)
        if seconds is UNKNOWN:
            return UNKNOWN
        if self._last_s is not None:
            # Lines of several processes aren't quite in order, at New Year too.
            if seconds < self._last_s - _HALF_YEAR_S:
                self._year += 1
                seconds = self._in_year(text, self._year)
            elif seconds > self._last_s + _HALF_YEAR_S:
                earlier = self._in_year(text, self._year - 1)
                return UNKNOWN if earlier is UNKNOWN else earlier - self._start_s
        if seconds is UNKNOWN:
            return UNKNOWN
        self._last_s = seconds
        return seconds - self._start_s

    def _in_year(self, text: str, year: int) -> float | Unknown:
        try:
            moment = datetime.strptime(f"{year:04}-{text}", "%Y-%m-%d %H:%M:%S")
        except ValueError:
            return UNKNOWN
        return moment.replace(tzinfo=UTC).timestamp()
