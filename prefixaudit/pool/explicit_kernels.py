"""The loop of the explicit block pool. It runs compiled, or as plain Python (`.py_func`).

All arrays come from the caller: a loop that makes none is compiled in a quarter of the time.
"""

from __future__ import annotations

from numba import njit


@njit(cache=True, nogil=True)
def simulate(  # type: ignore[no-untyped-def]
    order,
    start,
    ends,
    parent,
    size,
    depth,
    first_key,
    limits,
    num_keyed,
    prompt_slots,
    num_slots,
    unhashed_first,
    drops_last_block,
    with_donors,
    after,
    before,
    key_of,
    stored_by,
    newer,
    older,
    holder,
    table,
    path,
    hits,
    first,
    counts,
    donors,
    donor_blocks,
    counters,
):
    """Serve requests one after another from a pool of blocks, from place `start` of `order` on.

    A request takes `num_slots` blocks: the ones it hits (at most `limits`), then blocks from the
    front of the free queue, whose keys are forgotten. The first `num_keyed` of its blocks have
    keys: first_key[node] + place in the node. A key may be held by several blocks, in the order of
    registration; a lookup finds the first. At the end all its blocks are freed, tail first.

    Blocks are numbered from 1; 0 closes the rings: the free queue (`after`, `before`), and the
    holders of a key (`newer`, `older`; `holder` is the first one, 0 where there is none). These,
    `key_of` (-1: none), `stored_by`, `table` and `path` are the caller's memory.

    `hits` (int64 [requests]) gets the hit blocks; -1 where the prompt is larger than the pool, and
    nothing happens. With donors, `donors` and `donor_blocks` get one entry a run of hit blocks of
    one donor, from the prompt's start; a request has `counts` of them, from `first` on.
    `counters` (int64 [6]): answers that were cut for want of a block, keys forgotten, blocks
    without a key, keys given to a second block, operations (lookups, and blocks taken and given
    back), and entries in `donors`.

    Returns the place in `order` where it stopped, for want of room in `donors` or at the end.
    """
    capacity = len(after) - 1
    out_room = len(donors)
    num_out = counters[5]
    at = start
    while at < len(order):
        request = order[at]
        limit = limits[request]
        if with_donors and num_out + limit > out_room:
            break
        at += 1
        first[request] = num_out
        counts[request] = 0
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
        hit = 0
        step = length - 1
        while step >= 0:
            node = path[step]
            key = first_key[node]
            full = key + size[node]
            end = key + limit - hit
            if end > full:
                end = full
            while key < end and holder[key] > 0:
                table[hit] = holder[key]
                hit += 1
                key += 1
            if key < full:
                break
            step -= 1
        counters[4] += hit
        if drops_last_block and hit > 0:
            hit -= 1
        hits[request] = hit
        place = 0
        while place < hit:
            block = table[place]
            after[before[block]] = after[block]
            before[after[block]] = before[block]
            place += 1
        if with_donors:
            place = 0
            while place < hit:
                donor = stored_by[table[place]]
                if num_out > first[request] and donors[num_out - 1] == donor:
                    donor_blocks[num_out - 1] += 1
                else:
                    donors[num_out] = donor
                    donor_blocks[num_out] = 1
                    num_out += 1
                place += 1
            counts[request] = num_out - first[request]

        # Take the rest from the front of the free queue.
        slots = num_slots[request]
        if slots > capacity:
            slots = capacity
            counters[0] += 1
        keyed = num_keyed[request]
        if keyed > slots:
            keyed = slots
        block = after[0]
        place = hit
        while place < slots:
            table[place] = block
            key = key_of[block]
            if key >= 0:
                counters[1] += 1
                key_of[block] = -1
                if newer[block] == block:
                    holder[key] = 0
                else:
                    if holder[key] == block:
                        holder[key] = newer[block]
                    newer[older[block]] = newer[block]
                    older[newer[block]] = older[block]
            block = after[block]
            place += 1
        after[0] = block
        before[block] = 0

        # Give keys to the full blocks behind the hit.
        place = hit
        step = length - 1
        while step >= 0:
            node = path[step]
            end = depth[node] + size[node]
            if end > keyed:
                end = keyed
            key = first_key[node] + place - depth[node]
            while place < end:
                block = table[place]
                key_of[block] = key
                stored_by[block] = request
                head = holder[key]
                if head == 0:
                    holder[key] = block
                    newer[block] = block
                    older[block] = block
                else:
                    counters[3] += 1
                    newer[older[head]] = block
                    older[block] = older[head]
                    newer[block] = head
                    older[head] = block
                place += 1
                key += 1
            step -= 1

        # Give all back, tail first.
        last = before[0]
        end = slots
        if unhashed_first:
            end = keyed
        place = end - 1
        while place >= 0:
            block = table[place]
            after[last] = block
            before[block] = last
            last = block
            place -= 1
        after[last] = 0
        before[0] = last
        front = after[0]
        place = end
        while place < slots:
            block = table[place]
            after[block] = front
            before[front] = block
            front = block
            place += 1
        after[0] = front
        before[front] = 0
        counters[2] += slots - keyed
        counters[4] += 2 * slots
    counters[5] = num_out
    return at
