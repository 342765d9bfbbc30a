"""vLLM's prefix cache, operation by operation: block pool, KV groups, scheduler.

rules        PoolRules: everything that differs between releases and models
block_pool   blocks, reference counts, the free queue, keys
groups       one file a kind of KV group
coordinator  the hit that all groups agree on
manager      PoolManager: look up, allocate, free, reset
"""
