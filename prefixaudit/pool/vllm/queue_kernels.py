"""What the timed scheduler's loop does to the pool: the free queue, and who holds a key.

Both are rings in arrays, closed by entry 0: see `timed_kernels.serve`. They run compiled, or as
plain Python (`.py_func`), like that loop.
"""

from __future__ import annotations

from numba import njit


@njit(cache=True, nogil=True)
def keys_of(request, ends, parent, size, depth, first_key, num_keyed, keys):  # type: ignore[no-untyped-def]
    """Write the keys of a request's blocks, from the prompt's start."""
    node = ends[request]
    end = num_keyed[request]
    while node >= 0:
        place = depth[node]
        stop = place + size[node]
        if stop > end:
            stop = end
        key = first_key[node]
        while place < stop:
            keys[place] = key
            key += 1
            place += 1
        node = parent[node]


@njit(cache=True, nogil=True)
def take(table, start, num, after, before, readers, key_of, newer, older, holder):  # type: ignore[no-untyped-def]
    """Take blocks from the front of the free queue; return how many of them lost a key."""
    evicted = 0
    block = after[0]
    place = start
    while place < start + num:
        table[place] = block
        readers[block] = 1
        key = key_of[block]
        if key >= 0:
            evicted += 1
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
    return evicted


@njit(cache=True, nogil=True)
def register(table, table_keys, start, end, key_of, newer, older, holder):  # type: ignore[no-untyped-def]
    """Give keys to the blocks [start, end) of a table, each behind those that hold the same."""
    place = start
    while place < end:
        block = table[place]
        key = table_keys[place]
        key_of[block] = key
        head = holder[key]
        if head == 0:
            holder[key] = block
            newer[block] = block
            older[block] = block
        else:
            newer[older[head]] = block
            older[block] = older[head]
            newer[block] = head
            older[head] = block
        place += 1


@njit(cache=True, nogil=True)
def free(table, num, unhashed_first, after, before, readers, key_of):  # type: ignore[no-untyped-def]
    """Give a table's blocks back, the last one first to be evicted.

    Returns how many are free now, how many of those have a key, and how many had two readers.
    """
    freed = 0
    keyed = 0
    shared = 0
    place = num - 1
    while place >= 0:
        block = table[place]
        readers[block] -= 1
        if readers[block] == 1:
            shared += 1
        if readers[block] == 0:
            freed += 1
            if key_of[block] >= 0:
                keyed += 1
            if key_of[block] >= 0 or not unhashed_first:
                last = before[0]
                after[last] = block
                before[block] = last
                after[block] = 0
                before[0] = block
        place -= 1
    if unhashed_first:
        place = 0
        while place < num:
            block = table[place]
            if readers[block] == 0 and key_of[block] < 0:
                front = after[0]
                after[0] = block
                before[block] = 0
                after[block] = front
                before[front] = block
            place += 1
    return freed, keyed, shared
