"""Requests of a trace as columns: what a compiled reader gives, without an object a request.

They differ in line, time, lengths and block ids alone. Whoever needs Requests gets them from
`requests()`, which are what a reader that takes line by line would have given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefixaudit.core.identity import UNKNOWN_IDENTITY, Identity
from prefixaudit.core.request import BlockHashes, Request, Source, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceBatch:
    """Successive requests of one file whose prompts are block ids.

    path               the file, as the user gave it; `name` is what request ids start with
    block_size         tokens a block
    line               int64 [requests]    from 1
    arrival_s          float64 [requests]
    num_prompt_tokens  int64 [requests]
    num_output_tokens  int64 [requests]    as the server counted them
    hash_ids           uint64 [ids]        read-only, the ids of all requests
    first, end         int64 [requests]    a request's ids are hash_ids[first:end]: its full blocks,
                       and perhaps one that stands for a partial block
    """

    path: str
    name: str
    block_size: int
    line: NDArray[np.int64]
    arrival_s: NDArray[np.float64]
    num_prompt_tokens: NDArray[np.int64]
    num_output_tokens: NDArray[np.int64]
    hash_ids: NDArray[np.uint64]
    first: NDArray[np.int64]
    end: NDArray[np.int64]
    identity: Identity = UNKNOWN_IDENTITY

    def __len__(self) -> int:
        return len(self.line)

    @property
    def request_ids(self) -> list[str]:
        """Return the requests' ids: the file's name and the line."""
        return [f"{self.name}:{line}" for line in self.line.tolist()]

    def requests(self) -> Iterator[Request]:
        """Yield the requests one by one."""
        rows = zip(
            self.request_ids,
            self.line.tolist(),
            self.arrival_s.tolist(),
            self.num_prompt_tokens.tolist(),
            self.num_output_tokens.tolist(),
            self.first.tolist(),
            self.end.tolist(),
            strict=True,
        )
        for request_id, line, arrival_s, num_prompt_tokens, num_output_tokens, first, end in rows:
            yield Request(
                request_id=request_id,
                source=Source(self.path, line),
                prompt=BlockHashes(
                    hash_ids=self.hash_ids[first:end],
                    block_size=self.block_size,
                    num_prompt_tokens=num_prompt_tokens,
                ),
                arrival_s=arrival_s,
                identity=self.identity,
                usage=Usage(num_completion_tokens=num_output_tokens),
            )
