"""What engines say of their pools at start-up: one place for the lines that say it.

Lines of vLLM (`vllm/v1/core/kv_cache_utils.py`, `gpu_worker.py`, `config`) and of SGLang
(`model_runner.py`, `scheduler.py`).
"""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = r"([0-9][0-9,]{0,20})"

POOL_PATTERNS: Final = {
    "num_tokens": (
        re.compile(rf"GPU KV cache size:\s*{_NUMBER} tokens"),
        re.compile(rf"KV Cache is allocated\..*#tokens:\s*{_NUMBER}"),
        re.compile(rf"max_total_num_tokens={_NUMBER}"),
    ),
    "num_blocks": (
        re.compile(rf"# (?:GPU|cuda) blocks:\s*{_NUMBER}"),
        re.compile(rf"num_gpu_blocks_override={_NUMBER}"),
    ),
    "block_size": (
        re.compile(rf"Setting attention block size to {_NUMBER} tokens"),
        re.compile(r"\bpage_size=([0-9]{1,9})\b"),
    ),
}


def pool_figures(text: str) -> dict[str, int]:
    """Return what a line says of the pool: `num_tokens`, `num_blocks`, `block_size`."""
    return {
        name: int(match.group(1).replace(",", ""))
        for name, patterns in POOL_PATTERNS.items()
        for pattern in patterns
        if (match := pattern.search(text))
    }
