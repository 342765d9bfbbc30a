"""vLLM's prefix cache: operation by operation, step by step, and in time.

rules          what differs between releases and models: ReleaseRules, PoolRules
block_pool     blocks, reference counts, the free queue, keys
groups         one file a kind of KV group
coordinator    the hit that all groups agree on
manager        PoolManager: look up, allocate, free, reset
scheduler      Scheduler: who computes how many tokens in a step, and who has to wait
mamba_chunks   where it cuts chunks for recurrent layers
sequential     a whole BlockTrace, one request after another (the reference for faster replays)
timed          a whole BlockTrace in time, one group of full attention; timed_kernels is its loop,
               queue_kernels what a step does to the pool, measuring_kernels what is noted of it
sharing        who shares which blocks, and what a fork costs
prompt_runner  one prompt alone, chunk by chunk

Not modelled: connectors and remote blocks, encoder inputs, draft tokens' own slots, context
parallelism. In 0.23 alone, blocks without a key that leave a window go to the queue's front; here
they go to its back, as all others did then. From 0.33 with a drafter and no connector, vLLM can key
a block on the tokens after it as well (lookahead): pass such keys, and no `use_eagle`.
"""
