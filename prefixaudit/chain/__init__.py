"""Chains of block hashes, and the BlockTrace built from prompts.

canonical     the canonical SHA-256 chain: tokens and media, under an identity or under none
digests       those of recent prompts, so that nothing is hashed twice
builder       TraceBuilder: prompts in, BlockTrace out
tree          the radix tree while it grows; tree_kernels: its loops
partial       traces whose partial last ids count as blocks, and the range for finer blocks
export        a BlockTrace as a file, and back; export_lines: as lines for other tools
recipes       the chains of engines, byte for byte, one file a recipe
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixaudit.lazy_names import lazy_names

if TYPE_CHECKING:
    from prefixaudit.chain.builder import TraceBuilder as TraceBuilder
    from prefixaudit.chain.canonical import canonical_chain as canonical_chain

__all__ = ["TraceBuilder", "canonical_chain"]

__getattr__ = lazy_names(__name__, {"TraceBuilder": "builder", "canonical_chain": "canonical"})
