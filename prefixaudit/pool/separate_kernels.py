"""The loop that gives each namespace tree nodes of its own; it may change on the way down a prompt.

It runs compiled, or as plain Python (`.py_func`). Arrays grow by loops, not by slices.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def separate_by_class(  # type: ignore[no-untyped-def]
    order, namespaces, node_class, ends, parent, level
):
    """Give each (node, namespace of the node's class) a node of its own.

    namespaces  int64 [classes, requests], numbers from 0; each class refines the one before, and a
                node's class is never below its parent's
    order       requests so that equal numbers stand together in every class

    Returns for each request its own end node, and for each own node its parent among them and the
    node it was made from (all int64). A node that the namespace has met has ancestors that it met.
    """
    room = 2 * len(parent) + 16
    own_parent = np.empty(room, dtype=np.int64)
    origin = np.empty(room, dtype=np.int64)
    own_end = np.full(len(ends), -1, dtype=np.int64)
    met_by = np.full(len(parent), -1, dtype=np.int64)
    own = np.empty(len(parent), dtype=np.int64)
    num_own = 0
    for request in order:
        node = np.int64(ends[request])
        if node < 0:
            continue
        if num_own + level[node] > room:
            room = 2 * (num_own + level[node])
            larger = np.empty(room, dtype=np.int64)
            for entry in range(num_own):
                larger[entry] = own_parent[entry]
            own_parent = larger
            larger = np.empty(room, dtype=np.int64)
            for entry in range(num_own):
                larger[entry] = origin[entry]
            origin = larger
        child = np.int64(-1)
        while node >= 0:
            namespace = namespaces[node_class[node], request]
            if met_by[node] == namespace:
                break
            met_by[node] = namespace
            own[node] = num_own
            origin[num_own] = node
            own_parent[num_own] = -1
            if child >= 0:
                own_parent[child] = num_own
            child = np.int64(num_own)
            num_own += 1
            node = np.int64(parent[node])
        if node >= 0 and child >= 0:
            own_parent[child] = own[node]
        own_end[request] = own[ends[request]]
    return own_end, own_parent[:num_own], origin[:num_own]
