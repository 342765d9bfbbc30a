"""Lines made to keep a reader busy: each is done with in time that grows with its length."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from prefixaudit.errors import IncompleteError
from prefixaudit.logs import ReadOptions
from tests.logs.reading import read_bytes

SIZE = 300_000
RECEIVED = b"INFO 11-29 14:20:01 [logger.py:43] Received request a: prompt: "
RECEIVE = b"[2026-11-29 14:20:01] Receive: obj=GenerateReqInput(rid="
LINES = {
    "letters": b"a" * SIZE,
    "quotes": RECEIVED + b"'\"" * SIZE,
    "no end": RECEIVED + b"'" + b"a" * SIZE,
    "bad escapes": RECEIVED + b"'\\q" * SIZE,
    "brackets": RECEIVED + b"'', params: " + b"[(" * SIZE,
    "commas": RECEIVE + b", a=" * SIZE,
    "requests": b"Request " * SIZE,
    "levels": b"INFO 11-29 14:20:01 " * (SIZE // 10),
    "objects": RECEIVE + b"{'a': " * SIZE,
    "labels": b'vllm:a{b="c" ' + b'd="e",' * SIZE,
    "series": b"vllm:" + b"a:" * SIZE + b"{",
    "cells": b'p,n\n"' + b'""' * SIZE + b"\n",
    "open cells": b"prompt,n\n" + b'"a\n' * 20_001,
    "ids": RECEIVED + b"'', params: a, prompt_token_ids: [" + b"1, " * SIZE,
}


@pytest.mark.parametrize("log_format", ["vllm", "sglang", "prometheus", "mapped"])
@pytest.mark.parametrize("name", list(LINES))
def test_hostile_line_is_done_with_quickly(tmp_path: Path, name: str, log_format: str) -> None:
    start = time.process_time()
    try:
        read = read_bytes(tmp_path, LINES[name] + b"\n", ReadOptions(log_format=log_format))
    except IncompleteError:
        read = None

    assert time.process_time() - start < 2
    assert read is None or len(read.items) >= 1
