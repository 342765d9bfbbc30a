"""A BlockTrace as JSON lines that other tools replay: Mooncake's and Bailian's layouts.

Ids are dense and in order of first appearance, so they say nothing of the prompts but which blocks
are equal. A layout without an identity can't hold namespaces: requests of different namespaces get
different ids. Answers don't fit in: only the prompts' blocks are written, and what an answer
brought into the pool is lost to the next turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

import numpy as np
import orjson

from prefixaudit.core.trace import BlockTrace, Int32Array, Int64Array

_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


def write_mooncake(
    trace: BlockTrace, file: BinaryIO, *, namespaces: Int32Array | None = None
) -> None:
    """Write Mooncake JSON lines in order of arrival: timestamp (ms), lengths (tokens), hash_ids.

    Times count from the first request; where one isn't known, the log's order stands and no line
    has a time. Each prompt has ceil(tokens / block size) ids: a partial last block has the id of
    the trace, or one of its own where the log had tokens, since nothing says whom it equals.
    `namespaces` (int32 [requests]) are kept apart; None is one for all.
    """
    for request, time_s, ids in _numbered(trace, namespaces):
        line: dict[str, object] = {}
        if time_s is not None:
            line["timestamp"] = round(time_s * 1000)
        line["input_length"] = int(trace.num_prompt_tokens[request])
        if trace.num_output_tokens[request] >= 0:
            line["output_length"] = int(trace.num_output_tokens[request])
        line["hash_ids"] = ids
        file.write(orjson.dumps(line, option=_OPTIONS))


def write_bailian(
    trace: BlockTrace, file: BinaryIO, *, namespaces: Int32Array | None = None
) -> None:
    """Write Bailian JSON lines: as Mooncake's, in seconds, with the turns of each session.

    `chat_id` is the line's number from 0, `parent_chat_id` the line before of the same session, -1
    where there is none or the session isn't known; `turn` counts from 1.
    """
    turns: dict[int, tuple[int, int]] = {}
    for line_number, (request, time_s, ids) in enumerate(_numbered(trace, namespaces)):
        session = int(trace.session[request])
        parent, turn = turns.get(session, (-1, 0)) if session >= 0 else (-1, 0)
        turns[session] = line_number, turn + 1
        line: dict[str, object] = {"chat_id": line_number, "parent_chat_id": parent}
        if time_s is not None:
            line["timestamp"] = time_s
        line["input_length"] = int(trace.num_prompt_tokens[request])
        if trace.num_output_tokens[request] >= 0:
            line["output_length"] = int(trace.num_output_tokens[request])
        file.write(
            orjson.dumps(
                {**line, "type": "text", "turn": turn + 1, "hash_ids": ids}, option=_OPTIONS
            )
        )


def _numbered(
    trace: BlockTrace, namespaces: Int32Array | None
) -> Iterator[tuple[int, float | None, Int64Array]]:
    """Yield request, seconds since the first one, and dense ids (int64), in the order served."""
    tree = trace.tree
    parent, size = tree.parent.tolist(), tree.num_blocks.tolist()
    numbers: dict[tuple[int, int], Int64Array] = {}
    partial: dict[tuple[int, int, int], int] = {}
    next_id = 0
    order = trace.replay_order()
    are_times_known = not np.isnan(trace.arrival_s).any()
    start_s = float(trace.arrival_s.min(initial=np.inf)) if are_times_known else 0.0
    for request in order.tolist():
        namespace = 0 if namespaces is None else int(namespaces[request])
        node = int(trace.node[request])
        path = []
        while node >= 0:
            path.append(node)
            node = parent[node]
        num_full, rest = divmod(int(trace.num_prompt_tokens[request]), trace.block_size)
        left = min(num_full, int(trace.num_blocks[request]))
        parts = []
        for node in reversed(path):
            if not left:
                break
            own = numbers.get((namespace, node))
            if own is None:
                own = numbers[namespace, node] = np.full(size[node], -1, dtype=np.int64)
            part = own[:left]
            first_new = int(np.searchsorted(part < 0, True))
            part[first_new:] = np.arange(next_id, next_id + len(part) - first_new)
            next_id += len(part) - first_new
            # A copy: a later request may number the rest of the run.
            parts.append(part.copy())
            left -= len(part)
        if rest:
            if trace.has_partial_id[request]:
                key = (namespace, int(trace.node[request]), int(trace.partial_ids[request]))
                last = partial.setdefault(key, next_id)
            else:
                last = next_id
            next_id += last == next_id
            parts.append(np.array([last], dtype=np.int64))
        ids = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        time_s = float(trace.arrival_s[request]) - start_s if are_times_known else None
        yield request, time_s, ids
