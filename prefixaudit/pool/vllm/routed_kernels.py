"""The loop of several replicas behind a router. It runs compiled, or as plain Python.

All arrays come from the caller: a loop that makes none is compiled in a quarter of the time.
"""

from __future__ import annotations

from numba import njit

from prefixaudit.pool.vllm.queue_kernels import keys_of
from prefixaudit.pool.vllm.timed_kernels import serve

GIVEN, LEAST_COST, BEST_SCORE = 0, 1, 2


@njit(cache=True, nogil=True)
def serve_routed(  # type: ignore[no-untyped-def]
    order,
    rule,
    weights,
    replica_of,
    arrival_s,
    ends,
    parent,
    size,
    depth,
    first_key,
    num_keyed,
    num_prompt_tokens,
    num_answer_tokens,
    reads_cache,
    block_size,
    unhashed_first,
    drops_last_block,
    max_num_batched_tokens,
    max_num_seqs,
    max_model_tokens,
    reserves_whole_prompt,
    long_prefill_tokens,
    watermark_blocks,
    flops_until,
    sample_flops,
    s_per_flop,
    moved_s,
    token_s,
    overhead_s,
    after,
    before,
    readers,
    key_of,
    newer,
    older,
    holder,
    keys,
    tables,
    table_keys,
    running,
    idle,
    slots,
    preempted,
    known,
    counts,
    times_s,
    gaps,
    gaps_per_octave,
    samples,
    sample_every_s,
    totals,
    queues,
    num_queued,
    state,
    clock,
    tier_blocks,
    tier_token_s,
    tier_fixed_s,
    tier_min_blocks,
    writes_through,
    promotes,
    tier_of,
    tier_after,
    tier_before,
    tier_used,
    fetched_blocks,
    fetch_s,
    loads,
):
    """Give each request to a replica when it arrives, and serve them all; see `timed_kernels`.

    Arrays of a replica have the replica as their first axis. `replica_of` int64 [requests] says who
    gets a request under the rule GIVEN, and is written under the others, which look at the pools as
    they are at the arrival:

    LEAST_COST  weights[0] * blocks to compute (the waiting requests' and this one's, without what
                the replica holds of it) + weights[1] * blocks in use (with this one's)
    BEST_SCORE  weights[0] * share of the prompt's blocks held + weights[1] * how short the queue is
                among the replicas (1 the shortest, 0 the longest) + weights[2] * free share of the
                pool

    Of equals the one with the fewest requests so far is taken, then the first. `loads` (float64
    [replicas, 4]) is memory.
    """
    num_replicas = len(num_queued)
    num_usable = after.shape[1] - 1
    at = 0
    while at <= len(order):
        until_s = 1e300
        if at < len(order):
            until_s = arrival_s[order[at]]
        replica = 0
        while replica < num_replicas:
            if rule != GIVEN or at == len(order):
                serve(
                    queues[replica],
                    arrival_s,
                    ends,
                    parent,
                    size,
                    depth,
                    first_key,
                    num_keyed,
                    num_prompt_tokens,
                    num_answer_tokens,
                    reads_cache,
                    block_size,
                    unhashed_first,
                    drops_last_block,
                    max_num_batched_tokens,
                    max_num_seqs,
                    max_model_tokens,
                    reserves_whole_prompt,
                    long_prefill_tokens,
                    watermark_blocks,
                    flops_until,
                    sample_flops,
                    s_per_flop,
                    moved_s,
                    token_s,
                    overhead_s,
                    after[replica],
                    before[replica],
                    readers[replica],
                    key_of[replica],
                    newer[replica],
                    older[replica],
                    holder[replica],
                    keys,
                    tables[replica],
                    table_keys[replica],
                    running[replica],
                    idle[replica],
                    slots[replica],
                    preempted[replica],
                    known,
                    counts,
                    times_s,
                    gaps,
                    gaps_per_octave,
                    samples[replica],
                    sample_every_s,
                    totals[replica],
                    num_queued[replica],
                    until_s,
                    state[replica],
                    clock[replica],
                    tier_blocks,
                    tier_token_s,
                    tier_fixed_s,
                    tier_min_blocks,
                    writes_through,
                    promotes,
                    tier_of[replica],
                    tier_after[replica],
                    tier_before[replica],
                    tier_used[replica],
                    fetched_blocks,
                    fetch_s,
                )
            replica += 1
        if at == len(order):
            break
        request = order[at]
        at += 1
        chosen = replica_of[request]
        if rule != GIVEN:
            keys_of(request, ends, parent, size, depth, first_key, num_keyed, keys)
            blocks = (num_prompt_tokens[request] + block_size - 1) // block_size
            limit = (num_prompt_tokens[request] - 1) // block_size
            if limit > num_keyed[request]:
                limit = num_keyed[request]
            shortest = 1 << 60
            longest = 0
            replica = 0
            while replica < num_replicas:
                held = 0
                while held < limit and holder[replica][keys[held]] > 0:
                    held += 1
                # Waiting: preempted ones, and what came but wasn't admitted.
                waiting = 0
                to_compute = 0
                place = 0
                while place < state[replica, 4]:
                    to_compute += known[preempted[replica][place]]
                    waiting += 1
                    place += 1
                place = state[replica, 6]
                while place < num_queued[replica]:
                    to_compute += num_prompt_tokens[queues[replica][place]]
                    waiting += 1
                    place += 1
                loads[replica, 0] = held
                loads[replica, 1] = waiting
                loads[replica, 2] = to_compute / block_size
                loads[replica, 3] = num_usable - state[replica, 0]
                if waiting < shortest:
                    shortest = waiting
                if waiting > longest:
                    longest = waiting
                replica += 1
            best = 0.0
            chosen = -1
            replica = 0
            while replica < num_replicas:
                held_blocks = loads[replica, 0]
                if rule == LEAST_COST:
                    cost = weights[0] * (loads[replica, 2] + blocks - held_blocks)
                    cost += weights[1] * (loads[replica, 3] + blocks)
                    score = -cost
                else:
                    score = weights[0] * held_blocks / blocks
                    if longest > shortest:
                        score += weights[1] * (longest - loads[replica, 1]) / (longest - shortest)
                    else:
                        score += weights[1]
                    score += weights[2] * (1.0 - loads[replica, 3] / max(num_usable, 1))
                better = chosen < 0 or score > best
                if chosen >= 0 and score == best:
                    better = num_queued[replica] < num_queued[chosen]
                if better:
                    best = score
                    chosen = replica
                replica += 1
            replica_of[request] = chosen
        queues[chosen, num_queued[chosen]] = request
        num_queued[chosen] += 1
