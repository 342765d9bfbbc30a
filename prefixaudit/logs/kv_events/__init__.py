"""Events of a KV cache, as engines publish them: what a pool holds at the end of a dump.

This isn't a log of requests but the state of a server, from which a simulation can start warm.

_records  events out of files: msgpack or JSON lines, as arrays or as maps
_pool     the events replayed: which blocks are resident, and the prompts they are prefixes of
"""

from prefixaudit.logs.kv_events._pool import PoolContents, StoredPrefix, read_pool_contents

__all__ = ["PoolContents", "StoredPrefix", "read_pool_contents"]
