"""The tiers below a pool, for the loop of the timed scheduler: rings of keys by recency.

A key stands in one tier at most. `tier_after[head]` is a tier's most recent key,
`tier_before[head]` its least recent one; the heads stand behind the keys.
"""

from __future__ import annotations

from numba import njit


@njit(cache=True, nogil=True)
def save_evicted(  # type: ignore[no-untyped-def]
    num, after, key_of, newer, num_keys, tier_blocks, tier_of, tier_after, tier_before, tier_used
):
    """Put the keys of the next `num` free blocks, which are about to lose them, into the tiers."""
    block = after[0]
    place = 0
    while place < num:
        key = key_of[block]
        # Where another block holds the key too, the pool still has it.
        if key >= 0 and newer[block] == block:
            store(key, num_keys, tier_blocks, tier_of, tier_after, tier_before, tier_used)
        block = after[block]
        place += 1


@njit(cache=True, nogil=True)
def store_all(  # type: ignore[no-untyped-def]
    keys, start, end, num_keys, tier_blocks, tier_of, tier_after, tier_before, tier_used
):
    """Store keys[start:end], the front one last: it is the most recent then."""
    place = end - 1
    while place >= start:
        store(keys[place], num_keys, tier_blocks, tier_of, tier_after, tier_before, tier_used)
        place -= 1


@njit(cache=True, nogil=True)
def store(key, num_keys, tier_blocks, tier_of, tier_after, tier_before, tier_used):  # type: ignore[no-untyped-def]
    """Make a key the most recent of the first tier; what that pushes out goes one tier down."""
    tier = 0
    if tier_of[key] >= 0:
        _drop(key, tier_of, tier_after, tier_before, tier_used)
    while tier < len(tier_blocks):
        if tier_blocks[tier] > 0:
            head = num_keys + tier
            last = tier_after[head]
            # The ring: head's `newer` is the most recent, its `older` the least.
            tier_after[head] = key
            tier_before[last] = key
            tier_after[key] = last
            tier_before[key] = head
            tier_of[key] = tier
            tier_used[tier] += 1
            if tier_used[tier] <= tier_blocks[tier]:
                break
            key = tier_before[head]
            _drop(key, tier_of, tier_after, tier_before, tier_used)
        tier += 1


@njit(cache=True, nogil=True)
def _drop(key, tier_of, tier_after, tier_before, tier_used):  # type: ignore[no-untyped-def]
    """Take a key out of its tier."""
    tier_before[tier_after[key]] = tier_before[key]
    tier_after[tier_before[key]] = tier_after[key]
    tier_used[tier_of[key]] -= 1
    tier_of[key] = -1


@njit(cache=True, nogil=True)
def fetch(  # type: ignore[no-untyped-def]
    request,
    keys,
    hit,
    fetched,
    block_size,
    is_first,
    promotes,
    tier_blocks,
    tier_token_s,
    tier_fixed_s,
    tier_of,
    tier_after,
    tier_before,
    tier_used,
    fetched_blocks,
    fetch_s,
):
    """Bring blocks from the tiers, tail first; return the seconds that takes."""
    num_keys = len(tier_of)
    seconds = 0.0
    tier = 0
    while tier < len(tier_blocks):
        count = 0
        place = hit
        while place < hit + fetched:
            if tier_of[keys[place]] == tier:
                count += 1
            place += 1
        if count > 0:
            seconds += tier_fixed_s[tier] + count * block_size * tier_token_s[tier]
            if is_first:
                fetched_blocks[request, tier] = count
        tier += 1
    if is_first:
        fetch_s[request] = seconds
    # What was read is recent in its tier; `promotes` brings it to the first one.
    place = hit + fetched - 1
    while place >= 0:
        key = keys[place]
        tier = tier_of[key]
        if tier >= 0:
            if promotes or tier == 0:
                store(key, num_keys, tier_blocks, tier_of, tier_after, tier_before, tier_used)
            else:
                _drop(key, tier_of, tier_after, tier_before, tier_used)
                head = num_keys + tier
                last = tier_after[head]
                tier_after[head] = key
                tier_before[last] = key
                tier_after[key] = last
                tier_before[key] = head
                tier_of[key] = tier
                tier_used[tier] += 1
        place -= 1
    return seconds
