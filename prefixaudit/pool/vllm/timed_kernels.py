"""The loop of the timed scheduler. It runs compiled, or as plain Python (`.py_func`).

All arrays come from the caller: a loop that makes none is compiled in a quarter of the time.
"""

from __future__ import annotations

from numba import njit

from prefixaudit.pool.vllm.measuring_kernels import note_sample, note_token
from prefixaudit.pool.vllm.queue_kernels import free, keys_of, register, take
from prefixaudit.pool.vllm.tier_kernels import fetch, save_evicted, store_all


@njit(cache=True, nogil=True)
def serve(  # type: ignore[no-untyped-def]
    order,
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
    num_queued,
    until_s,
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
):
    """Serve requests as they arrive, step by step; see `timed.serve_timed` for what it means.

    The first `num_queued` of `order` are known. It stops where a step would begin at `until_s` or
    later, or nobody is left, and goes on from there when it is called again: `state` (int64 [10])
    and `clock` (float64 [2]) keep what no other array does; at the start they are `start_state`'s.

    Below the pool are tiers [tiers] of `tier_blocks` blocks, the fastest first: a key stands in one
    of them (`tier_of` int64 [keys], -1: in none), in rings of recency (`tier_after`, `tier_before`
    int32 [keys + tiers]; the last entries are the rings' heads). A block comes to the first tier
    when it is computed (`writes_through`) or evicted from the pool; what that pushes out goes to
    the next. A fetch of blocks takes tier_fixed_s + tokens * tier_token_s of each tier, in the step
    of the admission, which waits for it; shorter ones than `tier_min_blocks` are computed instead.
    `fetched_blocks` int64 [requests, tiers], `fetch_s` float64 [requests]: at first admission.

    Blocks are numbered from 1; 0 closes the rings: the free queue (`after`, `before`), and the
    holders of a key (`newer`, `older`; `holder` is the first one, 0 where there is none).
    `readers` counts references, `key_of` is -1 without a key.

    A running request has a slot, in order of admission in `running`: `tables` and `table_keys`
    [slots, blocks] are its blocks and their keys; `slots` int64 [slots, 6] its request, tokens
    known, tokens computed, blocks, blocks with a key, tokens of this step.
    `idle` are the free slots, `preempted` a stack of requests to resume, `known` their tokens.

    counts   int64 [requests, 6]  hit at first admission (-1: never fits), hits of all admissions,
             tokens computed, tokens thrown away, preemptions, tokens fetched in all admissions
    times_s  float64 [requests, 4]  first admission, first token, last token so far, finish
    gaps     int64 [bins]  seconds between tokens: bin floor(gaps_per_octave * log2(microseconds))
    samples  float64 [samples, 6]  time, blocks in use, free blocks with a key, running, waiting,
             blocks with two readers or more
    totals   int64 [6]  steps, blocks evicted, samples taken, tokens computed, blocks looked up,
             blocks taken and given back
    """
    num_usable = len(after) - 1
    num_tiers = len(tier_blocks)
    num_keys = len(holder)
    num_free = state[0]
    num_free_keyed = state[1]
    num_shared = state[2]
    num_running = state[3]
    num_preempted = state[4]
    num_idle = state[5]
    at = state[6]
    arrived = state[7]
    # Another call may have had the keys of another request in the same memory.
    keys_request = -1
    refused = state[8]
    now = clock[0]
    next_sample_s = clock[1]
    while True:
        if num_running == 0 and num_preempted == 0:
            if at >= num_queued:
                break
            if arrival_s[order[at]] > now:
                now = arrival_s[order[at]]
        if now >= until_s:
            break
        while arrived < num_queued and arrival_s[order[arrived]] <= now:
            arrived += 1
        totals[0] += 1
        budget = max_num_batched_tokens
        has_preempted = False
        flops = 0.0
        waited_s = 0.0
        num_context = 0
        place = 0
        while place < num_running:
            slots[running[place], 5] = 0
            place += 1

        # Running requests first, in order of admission.
        place = 0
        while place < num_running and budget > 0:
            slot = running[place]
            computed = slots[slot, 2]
            tokens = slots[slot, 1] - computed
            if 0 < long_prefill_tokens < tokens:
                tokens = long_prefill_tokens
            if tokens > budget:
                tokens = budget
            if tokens > max_model_tokens - 1 - computed:
                tokens = max_model_tokens - 1 - computed
            if tokens <= 0:
                place += 1
                continue
            needed = (computed + tokens + block_size - 1) // block_size - slots[slot, 3]
            stays = True
            while needed > num_free:
                # The one admitted last goes, and starts again from the front of the queue.
                num_running -= 1
                victim = running[num_running]
                request = slots[victim, 0]
                has_preempted = True
                refused = -1
                counts[request, 3] += slots[victim, 2]
                counts[request, 4] += 1
                known[request] = slots[victim, 1]
                preempted[num_preempted] = request
                num_preempted += 1
                idle[num_idle] = victim
                num_idle += 1
                freed, keyed, shared = free(
                    tables[victim], slots[victim, 3], unhashed_first, after, before, readers, key_of
                )
                num_free += freed
                num_free_keyed += keyed
                num_shared -= shared
                totals[5] += slots[victim, 3]
                if victim == slot:
                    stays = False
                    break
            if not stays:
                break
            if needed > 0:
                if num_tiers > 0 and not writes_through:
                    save_evicted(
                        needed,
                        after,
                        key_of,
                        newer,
                        num_keys,
                        tier_blocks,
                        tier_of,
                        tier_after,
                        tier_before,
                        tier_used,
                    )
                evicted = take(
                    tables[slot],
                    slots[slot, 3],
                    needed,
                    after,
                    before,
                    readers,
                    key_of,
                    newer,
                    older,
                    holder,
                )
                num_free -= needed
                num_free_keyed -= evicted
                totals[1] += evicted
                totals[5] += needed
                slots[slot, 3] += needed
            full = (computed + tokens) // block_size
            if full > num_keyed[slots[slot, 0]]:
                full = num_keyed[slots[slot, 0]]
            if full > slots[slot, 4]:
                register(
                    tables[slot],
                    table_keys[slot],
                    slots[slot, 4],
                    full,
                    key_of,
                    newer,
                    older,
                    holder,
                )
                if num_tiers > 0 and writes_through:
                    store_all(
                        table_keys[slot],
                        slots[slot, 4],
                        full,
                        num_keys,
                        tier_blocks,
                        tier_of,
                        tier_after,
                        tier_before,
                        tier_used,
                    )
                slots[slot, 4] = full
                refused = -1
            slots[slot, 5] = tokens
            budget -= tokens
            flops += flops_until[computed + tokens] - flops_until[computed]
            num_context += computed + tokens
            place += 1

        # Then the waiting ones, until one doesn't fit.
        while not has_preempted and budget > 0 and num_running < max_num_seqs:
            if num_preempted > 0:
                request = preempted[num_preempted - 1]
            elif at < arrived:
                request = order[at]
            else:
                break
            if request == refused and reserves_whole_prompt:
                # Nothing has been freed or stored since it was refused.
                break
            if request != keys_request:
                keys_of(request, ends, parent, size, depth, first_key, num_keyed, keys)
                keys_request = request
            num_tokens = known[request]
            limit = (num_tokens - 1) // block_size
            if limit > num_keyed[request]:
                limit = num_keyed[request]
            if not reads_cache[request]:
                limit = 0
            hit = 0
            while hit < limit and holder[keys[hit]] > 0:
                hit += 1
            totals[4] += hit
            if drops_last_block and hit > 0:
                hit -= 1
            free_hits = 0
            step = 0
            while step < hit:
                if readers[holder[keys[step]]] == 0:
                    free_hits += 1
                step += 1
            fetched = 0
            if num_tiers > 0 and not drops_last_block:
                # A store below doesn't know what the pool holds behind its first gap.
                while hit + fetched < limit and tier_of[keys[hit + fetched]] >= 0:
                    fetched += 1
                if fetched < tier_min_blocks:
                    fetched = 0
            computed = (hit + fetched) * block_size
            tokens = num_tokens - computed
            if 0 < long_prefill_tokens < tokens:
                tokens = long_prefill_tokens
            if tokens > budget:
                tokens = budget
            room = num_free - free_hits
            if num_running > 0:
                room -= watermark_blocks
            needed = (computed + tokens + block_size - 1) // block_size - hit
            whole = (num_tokens + block_size - 1) // block_size - hit
            if needed > room or (reserves_whole_prompt and whole > room):
                refused = request
                break

            if num_preempted > 0:
                num_preempted -= 1
            else:
                at += 1
            num_idle -= 1
            slot = idle[num_idle]
            running[num_running] = slot
            num_running += 1
            slots[slot, 0] = request
            slots[slot, 1] = num_tokens
            slots[slot, 2] = computed
            slots[slot, 3] = hit + needed
            slots[slot, 4] = hit
            slots[slot, 5] = tokens
            step = 0
            while step < num_keyed[request]:
                table_keys[slot, step] = keys[step]
                step += 1
            step = 0
            while step < hit:
                block = holder[keys[step]]
                tables[slot, step] = block
                if readers[block] == 0:
                    after[before[block]] = after[block]
                    before[after[block]] = before[block]
                elif readers[block] == 1:
                    num_shared += 1
                readers[block] += 1
                step += 1
            num_free -= free_hits
            num_free_keyed -= free_hits
            if num_tiers > 0:
                is_first = times_s[request, 0] < 0
                waited_s += fetch(
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
                )
                if not writes_through:
                    save_evicted(
                        needed,
                        after,
                        key_of,
                        newer,
                        num_keys,
                        tier_blocks,
                        tier_of,
                        tier_after,
                        tier_before,
                        tier_used,
                    )
            evicted = take(
                tables[slot], hit, needed, after, before, readers, key_of, newer, older, holder
            )
            num_free -= needed
            num_free_keyed -= evicted
            totals[1] += evicted
            totals[5] += hit + needed
            full = (computed + tokens) // block_size
            if full > num_keyed[request]:
                full = num_keyed[request]
            if full > hit:
                register(tables[slot], table_keys[slot], hit, full, key_of, newer, older, holder)
                if num_tiers > 0 and writes_through:
                    store_all(
                        keys,
                        hit + fetched,
                        full,
                        num_keys,
                        tier_blocks,
                        tier_of,
                        tier_after,
                        tier_before,
                        tier_used,
                    )
                slots[slot, 4] = full
            refused = -1
            counts[request, 1] += hit * block_size
            counts[request, 5] += fetched * block_size
            if times_s[request, 0] < 0:
                times_s[request, 0] = now
                counts[request, 0] = hit * block_size
            budget -= tokens
            flops += flops_until[computed + tokens] - flops_until[computed]
            num_context += computed + tokens

        new = max_num_batched_tokens - budget
        if new == 0:
            if num_running == 0:
                # Nobody runs, and the first one waiting doesn't fit: it never will.
                if num_preempted > 0:
                    num_preempted -= 1
                    request = preempted[num_preempted]
                else:
                    request = order[at]
                    at += 1
                counts[request, 0] = -1
                refused = -1
            totals[0] -= 1
            continue
        totals[3] += new

        # The step's seconds, then what it gave.
        place = 0
        while place < num_running:
            slot = running[place]
            if slots[slot, 5] > 0 and slots[slot, 2] + slots[slot, 5] == slots[slot, 1]:
                flops += sample_flops
            place += 1
        step_s = flops * s_per_flop[new]
        if step_s < moved_s[new] + num_context * token_s:
            step_s = moved_s[new] + num_context * token_s
        now += step_s + overhead_s[new] + waited_s
        kept = 0
        place = 0
        while place < num_running:
            slot = running[place]
            request = slots[slot, 0]
            slots[slot, 2] += slots[slot, 5]
            counts[request, 2] += slots[slot, 5]
            finished = False
            if slots[slot, 5] > 0 and slots[slot, 2] == slots[slot, 1]:
                slots[slot, 1] += 1
                note_token(request, now, times_s, gaps, gaps_per_octave)
                finished = (
                    slots[slot, 1] - num_prompt_tokens[request] >= num_answer_tokens[request]
                    or slots[slot, 1] >= max_model_tokens
                )
            if finished:
                times_s[request, 3] = now
                refused = -1
                idle[num_idle] = slot
                num_idle += 1
                freed, keyed, shared = free(
                    tables[slot], slots[slot, 3], unhashed_first, after, before, readers, key_of
                )
                num_free += freed
                num_free_keyed += keyed
                num_shared -= shared
                totals[5] += slots[slot, 3]
            else:
                running[kept] = slot
                kept += 1
            place += 1
        num_running = kept
        if now >= next_sample_s and totals[2] < len(samples):
            while arrived < num_queued and arrival_s[order[arrived]] <= now:
                arrived += 1
            note_sample(
                samples,
                totals[2],
                now,
                num_usable - num_free,
                num_free_keyed,
                num_running,
                num_preempted + arrived - at,
                num_shared,
            )
            totals[2] += 1
            next_sample_s = now + sample_every_s
    state[0] = num_free
    state[1] = num_free_keyed
    state[2] = num_shared
    state[3] = num_running
    state[4] = num_preempted
    state[5] = num_idle
    state[6] = at
    state[7] = arrived
    state[8] = refused
    clock[0] = now
    clock[1] = next_sample_s
