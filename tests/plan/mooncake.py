"""The public Mooncake traces as BlockTraces; tests that need them are skipped without them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from prefixaudit.chain import TraceBuilder
from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import BlockHashes, Request
from prefixaudit.core.trace import BlockTrace
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.logs import read_logs

TRACES = Path(__file__).parents[3] / "shared" / "traces" / "mooncake"
DATA = Path(__file__).parents[1] / "data"


def mooncake(name: str) -> BlockTrace:
    path = TRACES / f"{name}_trace.jsonl.gz"
    if not path.exists():
        pytest.skip("the public traces are not here")
    return read_trace(str(path))


@cache
def read_trace(path: str) -> BlockTrace:
    """Return a log of block ids as a trace."""
    builder: TraceBuilder | None = None
    for index, item in enumerate(read_logs([path])):
        assert isinstance(item, Request)
        assert isinstance(item.prompt, BlockHashes)
        if builder is None:
            builder = TraceBuilder(block_size=item.prompt.block_size, cache_generated=False)
        builder.add(
            Prompt(
                request=item,
                tokens=item.prompt,
                num_prompt_tokens=item.prompt.num_prompt_tokens,
                generated_token_ids=UNKNOWN,
            ),
            index,
        )
    assert builder is not None
    return builder.finish()
