"""Who serves a request when there are several replicas, each with a pool of its own.

round-robin      one after another
random           by a fixed seed
session          all requests of a session go where its first one went (round robin); a request
                 without a session goes round robin
consistent-hash  by the first blocks of the prompt (4 by default), rendezvous hashing: another
                 replica takes its share and moves nothing else
dynamo           Dynamo's KV router: least (blocks to compute + blocks in use), weights 1 and 1, no
                 randomness; its index is taken as exact
llm-d            scorers for prefix, queue and KV use, weights 3, 2, 2; its index is taken as exact

The weights of the last two are assumed, not read from a release; a plan prints them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from prefixaudit.core.trace import BlockTrace, Int64Array
from prefixaudit.errors import UsageError, unknown_name
from prefixaudit.plan.mixing import mixed
from prefixaudit.pool.vllm.timed import Replicas

ROUTINGS: Final = ("round-robin", "random", "session", "consistent-hash", "dynamo", "llm-d")
NEEDS_TIME: Final = frozenset({"dynamo", "llm-d"})

_SEED: Final = 1
_FIRST_BLOCKS: Final = 4
_DYNAMO: Final = (1.0, 1.0)
_LLM_D: Final = (3.0, 2.0, 2.0)


def parameters_of(routing: str) -> str:
    """Return what a routing rests on, for the report. Raises KeyError for an unknown routing."""
    return {
        "round-robin": "one after another in order of arrival",
        "random": f"a fixed seed ({_SEED})",
        "session": "a session stays where its first request went, round robin",
        "consistent-hash": f"rendezvous hashing of the first {_FIRST_BLOCKS} blocks",
        "dynamo": (
            f"least of {_DYNAMO[0]:g} x blocks to compute + {_DYNAMO[1]:g} x blocks in use, "
            "weights assumed, its index taken as exact"
        ),
        "llm-d": (
            f"best of {_LLM_D[0]:g} x prefix + {_LLM_D[1]:g} x queue + {_LLM_D[2]:g} x KV use, "
            "weights assumed, its index taken as exact"
        ),
    }[routing]


def replicas_of(
    trace: BlockTrace,
    routing: str,
    num_replicas: int,
    *,
    order: Int64Array | None = None,
    first_blocks: int = _FIRST_BLOCKS,
) -> Replicas:
    """Return who serves each request, or the rule that decides in time.

    `order` (int64 [requests]) is that of arrival. Raises UsageError for an unknown routing.
    """
    if routing not in ROUTINGS:
        raise UsageError(unknown_name("routing", routing, ROUTINGS))
    if routing == "dynamo":
        return Replicas(num_replicas=num_replicas, rule="least-cost", weights=_DYNAMO)
    if routing == "llm-d":
        return Replicas(num_replicas=num_replicas, rule="best-score", weights=_LLM_D)
    if order is None:
        order = trace.replay_order()
    number = trace.num_requests
    replica = np.zeros(number, dtype=np.int64)
    if routing == "round-robin":
        replica[order] = np.arange(number) % num_replicas
    elif routing == "random":
        replica[:] = np.random.default_rng(_SEED).integers(0, num_replicas, number)
    elif routing == "session":
        replica = _by_session(trace, num_replicas, order)
    else:
        replica = _by_first_blocks(trace, num_replicas, first_blocks)
    return Replicas(num_replicas=num_replicas, replica_of=replica)


def _by_session(trace: BlockTrace, num_replicas: int, order: Int64Array) -> Int64Array:
    # A request without a session is a session of its own.
    session = np.where(trace.session >= 0, trace.session, -1 - np.arange(trace.num_requests))
    _, first, inverse = np.unique(session[order], return_index=True, return_inverse=True)
    turn = np.empty(len(first), dtype=np.int64)
    turn[np.argsort(first)] = np.arange(len(first))
    replica = np.empty(trace.num_requests, dtype=np.int64)
    replica[order] = turn[inverse] % num_replicas
    return replica


def _by_first_blocks(trace: BlockTrace, num_replicas: int, first_blocks: int) -> Int64Array:
    if first_blocks < 1:
        raise UsageError(f"consistent hashing of {first_blocks} blocks; expected 1 or more")
    tree = trace.tree
    node = trace.node.astype(np.int64)
    # Requests without a full block are spread by their place.
    key = np.arange(trace.num_requests, dtype=np.uint64)
    wanted = np.minimum(trace.num_blocks, first_blocks)
    while True:
        deep = node >= 0
        deep[deep] = tree.depth_blocks[node[deep]] >= wanted[deep]
        if not deep.any():
            break
        node[deep] = tree.parent[node[deep]]
    has = node >= 0
    block = tree.first_block[node[has]] + wanted[has] - 1 - tree.depth_blocks[node[has]]
    labels = tree.labels[block]
    key[has] = mixed(labels[:, 0] ^ mixed(labels[:, 1]))
    scores = np.stack(
        [mixed(key ^ mixed(np.full(1, replica + 1, np.uint64))) for replica in range(num_replicas)]
    )
    return np.asarray(scores.argmax(axis=0), dtype=np.int64)


def requests_of(replica_of: Int64Array, num_replicas: int) -> Sequence[Int64Array]:
    """Return the positions (int64) of each replica's requests."""
    return [np.flatnonzero(replica_of == replica) for replica in range(num_replicas)]
