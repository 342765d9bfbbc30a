"""What the pool knows of a request: its lengths, what is computed, and the keys of its blocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True, eq=False)
class PoolRequest:
    """A request in a pool.

    number             who stores the blocks (a donor, in an analysis); unique while it runs
    keys               one a full hash block; may reach beyond `num_tokens` where the answer is
                       known. A block whose key isn't there yet is neither found nor registered
    num_prompt_tokens  tokens of the prompt
    num_tokens         tokens known: the prompt and the answer so far
    num_computed_tokens  tokens whose KV is in the pool
    shared_prefix_tokens  end of a prefix that another group still holds and a sparse one doesn't
    reads_cache        False: no lookup (vLLM's `skip_reading_prefix_cache`)
    """

    number: int
    keys: Sequence[Hashable]
    num_prompt_tokens: int
    num_tokens: int
    num_computed_tokens: int = 0
    shared_prefix_tokens: int = 0
    reads_cache: bool = True
