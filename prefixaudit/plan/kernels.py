"""Small loops over the tree of a trace. They run compiled, or as plain Python (`.py_func`)."""

from __future__ import annotations

from numba import njit


@njit(cache=True, nogil=True)
def add_up(parent, values):  # type: ignore[no-untyped-def]
    """Add to each node's value those of all nodes below it; parents stand before children."""
    node = len(parent) - 1
    while node >= 0:
        above = parent[node]
        if above >= 0:
            values[above] += values[node]
        node -= 1


@njit(cache=True, nogil=True)
def nearest_kept(parent, is_kept, found):  # type: ignore[no-untyped-def]
    """Write for each node itself or the nearest node above that is kept, -1 where there is none."""
    node = 0
    while node < len(parent):
        if is_kept[node]:
            found[node] = node
        elif parent[node] >= 0:
            found[node] = found[parent[node]]
        else:
            found[node] = -1
        node += 1


@njit(cache=True, nogil=True)
def touched_blocks(order, ends, parent, size, window, stamp, blocks):  # type: ignore[no-untyped-def]
    """Count the distinct blocks of each window of requests that follow each other.

    window  int64 [requests]  number of the window, never falling along `order`
    stamp   int64 [nodes]     -1 at the start
    blocks  int64 [windows]   gets the counts
    """
    at = 0
    while at < len(order):
        request = order[at]
        node = ends[request]
        number = window[request]
        while node >= 0 and stamp[node] != number:
            stamp[node] = number
            blocks[number] += size[node]
            node = parent[node]
        at += 1


@njit(cache=True, nogil=True)
def endless_hits(order, ends, limits, parent, size, depth, is_stored, path):  # type: ignore[no-untyped-def]
    """Return the blocks that an endless pool hits; `is_stored` starts False (bool [nodes])."""
    total = 0
    at = 0
    while at < len(order):
        request = order[at]
        length = 0
        node = ends[request]
        while node >= 0:
            path[length] = node
            length += 1
            node = parent[node]
        step = length - 1
        while step >= 0:
            node = path[step]
            found = limits[request] - depth[node]
            if found > size[node]:
                found = size[node]
            if not is_stored[node] or found <= 0:
                break
            total += found
            step -= 1
        while step >= 0:
            is_stored[path[step]] = True
            step -= 1
        at += 1
    return total
