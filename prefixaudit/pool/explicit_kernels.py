"""The loop of the explicit block pool. It runs compiled, or as plain Python (`.py_func`)."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def simulate(  # type: ignore[no-untyped-def]
    order,
    ends,
    parent,
    size,
    depth,
    first_key,
    limits,
    num_keyed,
    prompt_slots,
    num_slots,
    capacity,
    unhashed_first,
    drops_last_block,
    most_levels,
    hits,
    counters,
    with_donors,
):
    """Serve requests one after another from a pool of `capacity` blocks.

    A request takes `num_slots` blocks: the ones it hits (at most `limits`), then blocks from the
    front of the free queue, whose keys are forgotten. The first `num_keyed` of its blocks have
    keys: first_key[node] + place in the node. A key may be held by several blocks, in the order of
    registration; a lookup finds the first. At the end all its blocks are freed, tail first.

    Blocks are numbered from 1; 0 closes the rings: the free queue (after, before), and the
    holders of a key (newer, older; `holder` is the first one, 0 where there is none).

    `hits` (int64 [requests]) gets the hit blocks; -1 where the prompt is larger than the pool, and
    nothing happens. `counters` (int64 [5]): answers that were cut for want of a block, keys
    forgotten, blocks without a key, keys given to a second block, operations (lookups, and blocks
    taken and given back). Returns first and counts (int64 [requests]), donors (int32) and the
    blocks of each (int64), in order from the prompt's start.
    """
    num_requests = len(ends)
    after = np.empty(capacity + 1, dtype=np.int32)
    before = np.empty(capacity + 1, dtype=np.int32)
    for block in range(capacity + 1):
        after[block] = block + 1
        before[block] = block - 1
    after[capacity] = 0
    before[0] = capacity
    key_of = np.full(capacity + 1, -1, dtype=np.int64)
    stored_by = np.zeros(capacity + 1, dtype=np.int32)
    newer = np.zeros(capacity + 1, dtype=np.int32)
    older = np.zeros(capacity + 1, dtype=np.int32)
    num_keys = first_key[-1]
    holder = np.zeros(num_keys, dtype=np.int32)
    table = np.empty(capacity + 1, dtype=np.int32)
    path = np.empty(most_levels + 1, dtype=np.int64)
    out_room = 2 * num_requests + 16
    donors = np.empty(out_room, dtype=np.int32)
    blocks = np.empty(out_room, dtype=np.int64)
    first = np.zeros(num_requests, dtype=np.int64)
    counts = np.zeros(num_requests, dtype=np.int64)
    num_out = 0
    num_evicted = 0
    num_duplicates = 0
    num_operations = 0
    for request in order:
        first[request] = num_out
        if prompt_slots[request] > capacity:
            hits[request] = -1
            continue
        length = 0
        node = ends[request]
        while node >= 0:
            path[length] = node
            length += 1
            node = parent[node]

        # Look up, and take what was found out of the free queue.
        limit = limits[request]
        hit = 0
        for step in range(length - 1, -1, -1):
            node = path[step]
            key = first_key[node]
            end = key + min(size[node], limit - hit)
            while key < end and holder[key] > 0:
                table[hit] = holder[key]
                hit += 1
                key += 1
            if key < first_key[node] + size[node]:
                break
        num_operations += hit
        if drops_last_block and hit > 0:
            hit -= 1
        for place in range(hit):
            block = table[place]
            after[before[block]] = after[block]
            before[after[block]] = before[block]
        hits[request] = hit
        if with_donors:
            for place in range(hit):
                donor = stored_by[table[place]]
                if num_out > first[request] and donors[num_out - 1] == donor:
                    blocks[num_out - 1] += 1
                    continue
                if num_out == out_room:
                    out_room *= 2
                    larger = np.empty(out_room, dtype=np.int32)
                    larger[:num_out] = donors[:num_out]
                    donors = larger
                    longer = np.empty(out_room, dtype=np.int64)
                    longer[:num_out] = blocks[:num_out]
                    blocks = longer
                donors[num_out] = donor
                blocks[num_out] = 1
                num_out += 1
            counts[request] = num_out - first[request]

        # Take the rest from the front of the free queue.
        slots = num_slots[request]
        if slots > capacity:
            slots = capacity
            counters[0] += 1
        keyed = min(num_keyed[request], slots)
        block = after[0]
        for place in range(hit, slots):
            table[place] = block
            key = key_of[block]
            if key >= 0:
                num_evicted += 1
                key_of[block] = -1
                if newer[block] == block:
                    holder[key] = 0
                else:
                    if holder[key] == block:
                        holder[key] = newer[block]
                    newer[older[block]] = newer[block]
                    older[newer[block]] = older[block]
            block = after[block]
        after[0] = block
        before[block] = 0

        # Give keys to the full blocks behind the hit.
        for step in range(length - 1, -1, -1):
            node = path[step]
            start = max(hit, depth[node])
            for place in range(start, min(keyed, depth[node] + size[node])):
                block = table[place]
                key = first_key[node] + place - depth[node]
                key_of[block] = key
                stored_by[block] = request
                head = holder[key]
                if head == 0:
                    holder[key] = block
                    newer[block] = block
                    older[block] = block
                else:
                    num_duplicates += 1
                    last = older[head]
                    newer[last] = block
                    older[block] = last
                    newer[block] = head
                    older[head] = block

        # Give all back, tail first.
        last = before[0]
        end = keyed if unhashed_first else slots
        for place in range(end - 1, -1, -1):
            block = table[place]
            after[last] = block
            before[block] = last
            last = block
        after[last] = 0
        before[0] = last
        front = after[0]
        for place in range(end, slots):
            block = table[place]
            after[block] = front
            before[front] = block
            front = block
        after[0] = front
        before[front] = 0
        counters[2] += slots - keyed
        num_operations += 2 * slots
    counters[1] = num_evicted
    counters[3] = num_duplicates
    counters[4] = num_operations
    return first, counts, donors[:num_out].copy(), blocks[:num_out].copy()
