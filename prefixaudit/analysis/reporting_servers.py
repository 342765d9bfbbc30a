"""What servers reported, gathered beside the replay and held against it."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from prefixaudit.core.reported import NOT_REPORTED, REPORTED_NULL, UsageColumns
from prefixaudit.core.request import Request
from prefixaudit.core.unknown import UNKNOWN, Known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefixaudit.analysis.gathered import Gathered
    from prefixaudit.analysis.simulating import Simulated
    from prefixaudit.core.audit import AuditLog
    from prefixaudit.core.reported import ReportedFacts
    from prefixaudit.core.trace import BlockTrace
    from prefixaudit.core.trace_batch import TraceBatch
    from prefixaudit.deployment import Deployment


class UsageRows:
    """One row for every request that was read, replayed or not (see core.reported.UsageColumns)."""

    def __init__(self) -> None:
        self._index = array("q")
        self._position = array("q")
        self._prompt_tokens = array("q")
        self._cached_tokens = array("q")
        self._completion_tokens = array("q")
        self._server = array("q")
        self._servers: dict[str, int] = {}
        self._is_approximate = array("b")
        self._counted_outside = array("b")

    def add(
        self, request: Request, index: int, position: int, *, is_approximate: bool = False
    ) -> None:
        """Note a request's usage; `position` is its place in the trace, -1: it has none."""
        self._is_approximate.append(is_approximate)
        usage = request.usage
        self._counted_outside.append(usage.counted_outside)
        self._index.append(index)
        self._position.append(position)
        count = usage.num_prompt_tokens
        self._prompt_tokens.append(NOT_REPORTED if count is UNKNOWN else _code(count))
        count = usage.num_cached_tokens
        self._cached_tokens.append(NOT_REPORTED if count is UNKNOWN else _code(count))
        count = usage.num_completion_tokens
        self._completion_tokens.append(NOT_REPORTED if count is UNKNOWN else _code(count))
        server = request.server
        self._server.append(
            -1 if server is UNKNOWN else self._servers.setdefault(server, len(self._servers))
        )

    def add_batch(self, batch: TraceBatch, index: int, position: int) -> None:
        """Note requests that came as columns; index and place of the first one."""
        num_requests = len(batch)
        unknown = [NOT_REPORTED] * num_requests
        nothing = bytes(num_requests)
        self._is_approximate.frombytes(nothing)
        self._counted_outside.frombytes(nothing)
        self._index.extend(range(index, index + num_requests))
        self._position.extend(range(position, position + num_requests))
        self._prompt_tokens.extend(unknown)
        self._cached_tokens.extend(unknown)
        self._completion_tokens.extend(batch.num_output_tokens.tolist())
        self._server.extend([-1] * num_requests)

    def columns(self) -> UsageColumns:
        """Return the rows so far."""
        return UsageColumns(
            index=np.array(self._index, dtype=np.int64),
            position=np.array(self._position, dtype=np.int64),
            prompt_tokens=np.array(self._prompt_tokens, dtype=np.int64),
            cached_tokens=np.array(self._cached_tokens, dtype=np.int64),
            completion_tokens=np.array(self._completion_tokens, dtype=np.int64),
            server=np.array(self._server, dtype=np.int64),
            is_approximate=np.array(self._is_approximate, dtype=np.bool_),
            counted_outside=np.array(self._counted_outside, dtype=np.bool_),
        )


def _code(value: Known[int]) -> int:
    if value is None:
        return REPORTED_NULL
    return value if isinstance(value, int) else NOT_REPORTED


def reported_of(
    gathered: Gathered,
    deployment: Deployment,
    *,
    trace: BlockTrace | None,
    simulated: Simulated | None,
    log: AuditLog | None,
    capacity_blocks: int | None,
) -> ReportedFacts | None:
    """Return reported against replayed; None where nobody reported anything.

    `trace` is the one that was simulated, with identities; `log` the audit's view of it.
    """
    usage = gathered.usage
    has_usage = usage is not None and bool(
        ((usage.prompt_tokens != NOT_REPORTED) | (usage.cached_tokens != NOT_REPORTED)).any()
    )
    if usage is None or not (has_usage or gathered.readings):
        return None
    from prefixaudit.audit.reported import ReplayedHits, repeated_ids, reported_facts

    engine = deployment.engine
    # Servers of one deployment report alike, or nothing can be said of what their null means.
    settings: dict[str, object] = dict(deployment.engine_settings)
    for server in deployment.servers[:1]:
        settings |= {
            name: value
            for name, value in server.settings.items()
            if all(other.settings.get(name) == value for other in deployment.servers)
        }
    request_ids: Sequence[str] = () if trace is None else trace.request_ids
    skipped_ids = gathered.rows.skipped_request_ids.values()
    return reported_facts(
        usage,
        replayed=None
        if trace is None or simulated is None
        else ReplayedHits(
            trace=trace,
            log=log,
            this_pool=simulated.lookups.num_cached_tokens,
            endless_pool=simulated.endless_lookups.num_cached_tokens,
            capacity_blocks=capacity_blocks,
            min_recomputed_tokens=1 if engine is None else engine.min_recomputed_tokens,
        ),
        readings=gathered.readings,
        engine=engine,
        settings=settings,
        num_repeated_ids=repeated_ids([*request_ids, *skipped_ids]),
    )
