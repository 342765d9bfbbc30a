"""Helpers of the log tests: read bytes as a log, and tell requests from skips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from prefixaudit.core.request import Request, Skipped
from prefixaudit.logs import LogStream, ReadOptions, read_logs

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[2].parent / "shared"


class Read:
    """What one reading of some files gave."""

    def __init__(self, *paths: Path | str, options: ReadOptions | None = None) -> None:
        self.stream: LogStream = read_logs([str(path) for path in paths], options)
        self.items = list(self.stream)
        self.requests = [item for item in self.items if isinstance(item, Request)]
        self.skipped = [item for item in self.items if isinstance(item, Skipped)]

    @property
    def lines(self) -> list[int]:
        return [request.source.line for request in self.requests]

    @property
    def skips(self) -> list[tuple[int, str]]:
        return [(item.source.line, item.kind) for item in self.skipped]


def read_bytes(
    folder: Path, data: bytes, options: ReadOptions | None = None, name: str = "log.jsonl"
) -> Read:
    path = folder / name
    path.write_bytes(data)
    return Read(path, options=options)


def read_records(folder: Path, *records: Any, log_format: str | None = None) -> Read:
    data = b"".join(orjson.dumps(record) + b"\n" for record in records)
    return read_bytes(folder, data, ReadOptions(log_format=log_format))


def ids_record(number: int) -> dict[str, Any]:
    return {"request_id": f"r{number}", "prompt_token_ids": [1, 2, number]}


def ids_line(number: int) -> bytes:
    return orjson.dumps(ids_record(number))
