"""What several samples of one prompt (n > 1) hold, where all layers keep every token.

Engines have no copy-on-write of a running request: each sample is a request of its own, served from
the first one's full blocks. What a lookup can't hit (the last token's block, the tail) each sample
computes and keeps for itself. `pool.vllm.sharing.fork_cost` runs the same for any groups of layers.
"""

from __future__ import annotations

import math


def fork_blocks(
    num_prompt_tokens: int, num_samples: int, block_size: int, min_recomputed_tokens: int = 1
) -> tuple[int, int, int]:
    """Return (blocks that all samples hold, private copies, prompt tokens computed again).

    Copies and tokens are those of the second and later samples.
    """
    shared = max(num_prompt_tokens - min_recomputed_tokens, 0) // block_size
    private = math.ceil(num_prompt_tokens / block_size) - shared
    recomputed = num_prompt_tokens - shared * block_size
    return shared, (num_samples - 1) * private, (num_samples - 1) * recomputed
