"""The loops of the LRU replay. Each runs compiled, or as plain Python (`.py_func`).

All of them walk runs, not blocks: a node of the tree is passed as a whole, so its blocks were last
touched together, the front one last. No function calls another: the plain form of one must not
compile the other. Arrays grow by loops, not by slices, which take numba a second to compile.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def levels(parent):  # type: ignore[no-untyped-def]
    """Return the number of nodes from the root to each node, itself included (int64)."""
    level = np.ones(len(parent), dtype=np.int64)
    for node in range(len(parent)):
        if parent[node] >= 0:
            level[node] = level[parent[node]] + 1
    return level


@njit(cache=True, nogil=True)
def stack_distances(  # type: ignore[no-untyped-def]
    order,
    ends,
    limits,
    parent,
    size,
    depth,
    most_levels,
    capacities,
    block_flops,
    curvature,
    flops,
    hits,
):
    """Add up what every run contributes at every capacity, and hits at a few of them.

    A run of m blocks (cut at the request's limit) with D blocks above it in the LRU order has
    clamp(C - D, 0, m) hits at capacity C: `curvature` (int64 [blocks + 2]) gets +1 at D + 1 and
    -1 at D + m + 1, and its double running sum is the curve. Block k of it saves
    block_flops[depth + k] from capacity D + k + 1 on; `flops` (float64 [blocks + 2]) gets that, if
    `block_flops` has any. `hits` is int64 [capacities, requests].

    D comes from a Fenwick tree over the times of last access, weighted by the runs' sizes; times
    are renumbered when they run out. Where a child's last access came right before its parent's,
    D is the parent's plus the parent's size, without a query.
    """
    num_nodes = len(parent)
    room = 4 * num_nodes + most_levels + 1
    fenwick = np.zeros(room + 1, dtype=np.int64)
    at_time = np.full(room + 1, -1, dtype=np.int64)
    last = np.zeros(num_nodes, dtype=np.int64)
    path = np.empty(most_levels + 1, dtype=np.int64)
    clock = 0
    total = np.int64(0)
    num_capacities = len(capacities)
    with_flops = len(block_flops) > 0
    for request in order:
        length = 0
        node = np.int64(ends[request])
        while node >= 0:
            path[length] = node
            length += 1
            node = np.int64(parent[node])
        if clock + length > room:
            live = 0
            for time in range(1, clock + 1):
                node = at_time[time]
                if node >= 0:
                    at_time[time] = -1
                    live += 1
                    at_time[live] = node
                    last[node] = live
            clock = live
            for time in range(1, room + 1):
                fenwick[time] = size[at_time[time]] if time <= live else 0
            for time in range(1, room + 1):
                above = time + (time & -time)
                if above <= room:
                    fenwick[above] += fenwick[time]
        limit = limits[request]
        distance = np.int64(0)
        before = np.int64(-1)
        for step in range(length - 1, -1, -1):
            node = path[step]
            time = last[node]
            if time == 0 or depth[node] >= limit:
                break
            if before >= 0 and last[before] == time + 1:
                distance += size[before]
            else:
                distance = total
                place = time
                while place > 0:
                    distance -= fenwick[place]
                    place &= place - 1
            before = node
            count = np.int64(min(size[node], limit - depth[node]))
            curvature[distance + 1] += 1
            curvature[distance + count + 1] -= 1
            if with_flops:
                for block in range(count):
                    flops[distance + 1 + block] += block_flops[depth[node] + block]
            for row in range(num_capacities):
                if capacities[row] > distance:
                    hits[row, request] += min(count, capacities[row] - distance)
        for step in range(length):
            node = path[step]
            weight = np.int64(size[node])
            time = last[node]
            if time > 0:
                at_time[time] = -1
                while time <= room:
                    fenwick[time] -= weight
                    time += time & -time
            else:
                total += weight
            clock += 1
            last[node] = clock
            at_time[clock] = node
            time = clock
            while time <= room:
                fenwick[time] += weight
                time += time & -time


@njit(cache=True, nogil=True)
def find_donors(  # type: ignore[no-untyped-def]
    order, ends, hits, parent, size, depth, most_levels, num_requests
):
    """Return who stored the blocks that each request hits.

    A request stores every block behind its hits, whoever stored it before. So the blocks of a node
    fall into stretches with one donor each, and storing drops the ones behind a place and adds
    one: a stack for each node, linked through `below`.

    Returns first (int64 [requests], where a request's donors start), counts (int64 [requests]),
    donors (int32) and the blocks of each (int64), in order from the prompt's start.
    """
    num_nodes = len(parent)
    top = np.full(num_nodes, -1, dtype=np.int64)
    room = num_nodes + 16
    begin = np.empty(room, dtype=np.int64)
    donor = np.empty(room, dtype=np.int64)
    below = np.empty(room, dtype=np.int64)
    num_stretches = 0
    free = -1
    path = np.empty(most_levels + 1, dtype=np.int64)
    out_room = 2 * num_requests + 16
    donors = np.empty(out_room, dtype=np.int32)
    blocks = np.empty(out_room, dtype=np.int64)
    first = np.zeros(num_requests, dtype=np.int64)
    counts = np.zeros(num_requests, dtype=np.int64)
    num_out = 0
    for request in order:
        hit = hits[request]
        length = 0
        node = np.int64(ends[request])
        while node >= 0:
            path[length] = node
            length += 1
            node = np.int64(parent[node])
        first[request] = num_out
        # From the tail to the front, then turned round.
        for step in range(length):
            node = path[step]
            end = min(size[node], hit - depth[node])
            if end <= 0:
                continue
            stretch = top[node]
            while stretch >= 0:
                if begin[stretch] < end:
                    if num_out > first[request] and donors[num_out - 1] == donor[stretch]:
                        blocks[num_out - 1] += end - begin[stretch]
                    else:
                        if num_out == out_room:
                            out_room *= 2
                            larger = np.empty(out_room, dtype=np.int32)
                            for entry in range(num_out):
                                larger[entry] = donors[entry]
                            donors = larger
                            longer = np.empty(out_room, dtype=np.int64)
                            for entry in range(num_out):
                                longer[entry] = blocks[entry]
                            blocks = longer
                        donors[num_out] = donor[stretch]
                        blocks[num_out] = end - begin[stretch]
                        num_out += 1
                    end = begin[stretch]
                stretch = below[stretch]
        counts[request] = num_out - first[request]
        left = first[request]
        right = num_out - 1
        while left < right:
            kept = donors[left]
            donors[left] = donors[right]
            donors[right] = kept
            number = blocks[left]
            blocks[left] = blocks[right]
            blocks[right] = number
            left += 1
            right -= 1
        for step in range(length):
            node = path[step]
            place = max(0, hit - depth[node])
            if place >= size[node]:
                break
            stretch = top[node]
            while stretch >= 0 and begin[stretch] >= place:
                under = below[stretch]
                below[stretch] = free
                free = stretch
                stretch = under
            if free >= 0:
                new = free
                free = below[new]
            else:
                if num_stretches == room:
                    room *= 2
                    longer = np.empty(room, dtype=np.int64)
                    for entry in range(num_stretches):
                        longer[entry] = begin[entry]
                    begin = longer
                    longer = np.empty(room, dtype=np.int64)
                    for entry in range(num_stretches):
                        longer[entry] = donor[entry]
                    donor = longer
                    longer = np.empty(room, dtype=np.int64)
                    for entry in range(num_stretches):
                        longer[entry] = below[entry]
                    below = longer
                new = num_stretches
                num_stretches += 1
            begin[new] = place
            donor[new] = request
            below[new] = stretch
            top[node] = new
    return first, counts, donors[:num_out], blocks[:num_out]
