"""Chains of block hashes, and the BlockTrace built from prompts.

canonical     the canonical SHA-256 chain: tokens and media, under an identity or under none
builder       TraceBuilder: prompts in, BlockTrace out
tree_kernels  the loops of the radix tree
partial       traces whose partial last ids count as blocks, and the range for finer blocks
export        a BlockTrace as a file, and back
recipes       the chains of engines, byte for byte, one file a recipe
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefixaudit.chain.builder import TraceBuilder as TraceBuilder
    from prefixaudit.chain.canonical import canonical_chain as canonical_chain

_HOMES = {"TraceBuilder": "builder", "canonical_chain": "canonical"}

__all__ = ["TraceBuilder", "canonical_chain"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the builder needs numba, `--help` does not."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
