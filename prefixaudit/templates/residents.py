"""Rows of a trace, and what an LRU pool holds after some of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from prefixaudit.core.trace import ROOT, BlockTrace, Int32Array, Int64Array


def rows_of(trace: BlockTrace, rows: Int64Array) -> BlockTrace:
    """Return a trace of some requests, in the order of `rows`; the tree stays that of all."""
    return replace(
        trace,
        index=trace.index[rows],
        node=trace.node[rows],
        num_blocks=trace.num_blocks[rows],
        num_prompt_tokens=trace.num_prompt_tokens[rows],
        num_generated_tokens=trace.num_generated_tokens[rows],
        num_output_tokens=trace.num_output_tokens[rows],
        arrival_s=trace.arrival_s[rows],
        identity=trace.identity[rows],
        session=trace.session[rows],
        reads_cache=trace.reads_cache[rows],
        request_ids=tuple(trace.request_ids[row] for row in rows.tolist()),
        partial_ids=trace.partial_ids[rows],
        has_partial_id=trace.has_partial_id[rows],
    )


def useless_blocks(
    trace: BlockTrace,
    namespaces: Int32Array,
    *,
    served: Int64Array,
    wanted: Int64Array,
    capacity_blocks: int | None,
) -> tuple[int, int]:
    """Return (blocks in an LRU pool after `served`, those of them that no row of `wanted` has).

    namespaces  int32 [requests]: rows of different numbers share nothing
    served      int64: rows in the order in which they were served, from a cold pool
    wanted      int64: rows whose blocks aren't useless
    """
    keys, last = _passed(trace, namespaces, served)
    useful, _ = _passed(trace, namespaces, wanted)
    nodes = keys % len(trace.tree.parent) if len(keys) else keys
    sizes = trace.tree.num_blocks[nodes].astype(np.int64)
    if capacity_blocks is not None:
        # The most recent first; within a request the front, since it is touched last.
        order = np.lexsort((trace.tree.depth_blocks[nodes], -last))
        above = np.concatenate([[0], np.cumsum(sizes[order])[:-1]])
        sizes[order] = np.clip(capacity_blocks - above, 0, sizes[order])
    is_useful = np.isin(keys, useful)
    return int(sizes.sum()), int(sizes[~is_useful].sum())


def _passed(
    trace: BlockTrace, namespaces: Int32Array, rows: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return every (namespace, node) that rows pass, as keys, and the last row that does.

    Keys are namespace * nodes + node (int64); the last one counts places in `rows`.
    """
    parent = trace.tree.parent.tolist()
    num_nodes = len(parent)
    last: dict[int, int] = {}
    ends, spaces = trace.node[rows].tolist(), namespaces[rows].tolist()
    # From the last row to the first: who comes to a node first is the last that passes it, and all
    # above it is known then, so each is visited once.
    for place in range(len(ends) - 1, -1, -1):
        node, base = ends[place], spaces[place] * num_nodes
        while node != ROOT and base + node not in last:
            last[base + node] = place
            node = parent[node]
    return (
        np.fromiter(last.keys(), dtype=np.int64, count=len(last)),
        np.fromiter(last.values(), dtype=np.int64, count=len(last)),
    )
