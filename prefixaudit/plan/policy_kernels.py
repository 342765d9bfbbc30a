"""The loops of a pool that evicts leaves by rank. They run compiled, or as plain Python.

Runs of the tree, not blocks, are ranked: the blocks of a run are always passed together. All
arrays come from the caller: a loop that makes none is compiled in a quarter of the time.
"""

from __future__ import annotations

from numba import njit

LRU, FIFO, LFU, SLRU, BELADY = 0, 1, 2, 3, 4
_TIME_BITS = 40


@njit(cache=True, nogil=True)
def next_uses(order, ends, limits, parent, depth, offsets, next_use, seen):  # type: ignore[no-untyped-def]
    """Write when each run of each request is looked up again: place in `order`, else its length.

    `next_use` has the path of request r, its end first, from offsets[r] on; `seen` (int64 [nodes])
    starts with len(order).
    """
    at = len(order) - 1
    while at >= 0:
        request = order[at]
        step = offsets[request]
        node = ends[request]
        while node >= 0:
            next_use[step] = seen[node]
            if depth[node] < limits[request]:
                seen[node] = at
            step += 1
            node = parent[node]
        at -= 1


@njit(cache=True, nogil=True)
def serve_by_rank(  # type: ignore[no-untyped-def]
    order,
    ends,
    limits,
    parent,
    size,
    depth,
    policy,
    may_bypass,
    capacity,
    offsets,
    next_use,
    resident,
    num_children,
    count,
    rank,
    heap,
    place_of,
    path,
    hits,
):
    """Serve requests one after another; `hits` (int64 [requests]) gets the blocks each one hits.

    resident      int64 [nodes]  blocks of a run in the pool, from its front; 0 at the start
    num_children  int64 [nodes]  children with a block in the pool
    count         int64 [nodes]  requests that passed the run since it came into the pool
    rank, heap, place_of  int64 [nodes]  the leaves as a binary heap, smallest rank first;
                  `place_of` is -1 for what isn't in it
    offsets, next_use  see `next_uses`; for Belady's rule only

    With `may_bypass` a request's own blocks can be the first to go; else they stay until the next
    request, as an engine needs them while it runs, and what doesn't fit is its tail.
    """
    num_leaves = 0
    num_resident = 0
    now = 0
    while now < len(order):
        request = order[now]
        now += 1
        length = 0
        node = ends[request]
        while node >= 0:
            path[length] = node
            length += 1
            node = parent[node]
        hit = 0
        step = length - 1
        while step >= 0:
            node = path[step]
            found = resident[node]
            if found > limits[request] - depth[node]:
                found = limits[request] - depth[node]
            if found <= 0:
                break
            hit += found
            if found < size[node]:
                break
            step -= 1
        hits[request] = hit

        # The path is in use: none of it is a leaf that may go.
        needed = 0
        step = 0
        while step < length:
            node = path[step]
            needed += size[node] - resident[node]
            if place_of[node] >= 0:
                num_leaves -= 1
                _remove(heap, rank, place_of, num_leaves, place_of[node])
            step += 1
        stop = length
        if not may_bypass:
            while capacity - num_resident < needed and num_leaves > 0:
                missing = needed - capacity + num_resident
                leaf = heap[0]
                freed = resident[leaf] if resident[leaf] < missing else missing
                resident[leaf] -= freed
                num_resident -= freed
                if resident[leaf] == 0:
                    num_leaves -= 1
                    _remove(heap, rank, place_of, num_leaves, 0)
                    above = parent[leaf]
                    if above >= 0:
                        num_children[above] -= 1
                        in_use = 0
                        if num_children[above] == 0:
                            # Runs of this very path end in its front: a short look suffices.
                            step = length - 1
                            while step >= 0 and depth[path[step]] <= depth[above]:
                                if path[step] == above:
                                    in_use = 1
                                step -= 1
                            if in_use == 0:
                                _push(heap, rank, place_of, num_leaves, above)
                                num_leaves += 1
        last = -1
        step = stop - 1
        while step >= 0:
            node = path[step]
            added = size[node] - resident[node]
            if not may_bypass and added > capacity - num_resident:
                added = capacity - num_resident
            if added > 0:
                if resident[node] == 0:
                    count[node] = 0
                    if parent[node] >= 0:
                        num_children[parent[node]] += 1
                if policy == FIFO:
                    rank[node] = now
                resident[node] += added
                num_resident += added
            if resident[node] == 0:
                break
            last = node
            count[node] += 1
            if policy == LRU:
                rank[node] = now
            elif policy == LFU:
                rank[node] = (count[node] << _TIME_BITS) + now
            elif policy == SLRU:
                rank[node] = now
                if count[node] > 1:
                    rank[node] += 1 << _TIME_BITS
            elif policy == BELADY:
                rank[node] = -next_use[offsets[request] + step]
            if resident[node] < size[node]:
                break
            step -= 1
        if last >= 0 and num_children[last] == 0:
            _push(heap, rank, place_of, num_leaves, last)
            num_leaves += 1
        while num_resident > capacity and num_leaves > 0:
            missing = num_resident - capacity
            leaf = heap[0]
            freed = resident[leaf] if resident[leaf] < missing else missing
            resident[leaf] -= freed
            num_resident -= freed
            if resident[leaf] == 0:
                num_leaves -= 1
                _remove(heap, rank, place_of, num_leaves, 0)
                above = parent[leaf]
                if above >= 0:
                    num_children[above] -= 1
                    if num_children[above] == 0:
                        _push(heap, rank, place_of, num_leaves, above)
                        num_leaves += 1


@njit(cache=True, nogil=True)
def _push(heap, rank, place_of, num_leaves, node):  # type: ignore[no-untyped-def]
    """Add a node to a heap of `num_leaves` entries."""
    place = num_leaves
    while place > 0:
        above = (place - 1) >> 1
        if rank[heap[above]] <= rank[node]:
            break
        heap[place] = heap[above]
        place_of[heap[place]] = place
        place = above
    heap[place] = node
    place_of[node] = place


@njit(cache=True, nogil=True)
def _remove(heap, rank, place_of, num_left, place):  # type: ignore[no-untyped-def]
    """Take the entry at `place` out of a heap that has `num_left` entries afterwards."""
    place_of[heap[place]] = -1
    node = heap[num_left]
    if place == num_left:
        return
    while place > 0:
        above = (place - 1) >> 1
        if rank[heap[above]] <= rank[node]:
            break
        heap[place] = heap[above]
        place_of[heap[place]] = place
        place = above
    while True:
        below = 2 * place + 1
        if below >= num_left:
            break
        if below + 1 < num_left and rank[heap[below + 1]] < rank[heap[below]]:
            below += 1
        if rank[heap[below]] >= rank[node]:
            break
        heap[place] = heap[below]
        place_of[heap[place]] = place
        place = below
    heap[place] = node
    place_of[node] = place
