"""What happened to the servers while the log was written: a timeline of events.

One JSON object a line, as an operator or an adapter registry logs them:

    {"timestamp": "2026-03-02T14:20:00Z", "event": "update_weights", "revision": "step-101",
     "prefix_cache_reset": false}
    {"timestamp": …, "event": "load", "lora_name": "legal", "lora_path": "/adapters/legal-v2",
     "sha256": "22…"}
    {"timestamp": …, "event": "reset_prefix_cache"}

timestamp   any unit or ISO 8601 (also `time`, `ts`, `arrival_s`)
event       serve, start, restart: a process begins, with an empty pool and a `revision`
            update_weights, load_weights, reload_weights: other weights in the running process
            load, load_lora_adapter, unload, unload_lora_adapter: an adapter under a name
            reset_prefix_cache, flush_cache, AllBlocksCleared: the pool is emptied
server, model   whom it is about; without one: all
revision, sha256, digest, lora_int_id   what tells the weights apart, the first that is there
prefix_cache_reset, flush_cache   whether a weight update emptied the pool; by default as the
            engine does (SGLang does, vLLM doesn't)
reset_external  whether an emptying reached external stores too (no)

Events complete the requests' identities by arrival time: what a request itself records wins.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from prefixaudit.core.identity import Identity
from prefixaudit.core.trace import Float64Array, Int32Array
from prefixaudit.core.unknown import UNKNOWN, Known, Unknown
from prefixaudit.errors import ConfigurationError
from prefixaudit.logs._times import parse_time

EventKind: TypeAlias = Literal["start", "weights", "load-adapter", "unload-adapter", "reset"]

_KINDS: Final[Mapping[str, EventKind]] = {
    "serve": "start",
    "start": "start",
    "restart": "start",
    "update_weights": "weights",
    "load_weights": "weights",
    "reload_weights": "weights",
    "update_weights_from_disk": "weights",
    "update_weights_from_tensor": "weights",
    "update_weights_from_distributed": "weights",
    "load": "load-adapter",
    "load_adapter": "load-adapter",
    "load_lora_adapter": "load-adapter",
    "unload": "unload-adapter",
    "unload_adapter": "unload-adapter",
    "unload_lora_adapter": "unload-adapter",
    "reset": "reset",
    "reset_prefix_cache": "reset",
    "flush_cache": "reset",
    "all_blocks_cleared": "reset",
    "allblockscleared": "reset",
}
_TIME_NAMES: Final = ("timestamp", "time", "ts", "arrival_s")
_REVISION_NAMES: Final = ("revision", "sha256", "digest", "weight_version")
_MAX_FILE_BYTES: Final = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event; `server` and `model` None: it is about all. `empties_pool` None: as the engine."""

    time_s: float
    kind: EventKind
    server: str | None = None
    model: str | None = None
    revision: Known[str] = UNKNOWN
    lora_name: str | None = None
    lora_path: Known[str] = UNKNOWN
    empties_pool: bool | None = None
    empties_stores: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The events of a deployment in order of time."""

    events: tuple[Event, ...]
    _kept: dict[object, Identity] = field(default_factory=dict, repr=False, compare=False)

    @property
    def changed_fields(self) -> frozenset[str]:
        """Return the identity fields that change under a running server."""
        changes = any(event.kind == "weights" for event in self.events)
        return frozenset({"model_revision"} if changes else ())

    @property
    def adapter_names(self) -> tuple[str, ...]:
        """Return the names of all adapters that were loaded, in order of their first load."""
        names = (event.lora_name for event in self.events if event.kind == "load-adapter")
        return tuple(dict.fromkeys(name for name in names if name is not None))

    def complete(
        self, identity: Identity, arrival_s: float | Unknown, server: str | Unknown
    ) -> Identity:
        """Return the identity with revision and adapter as they were when the request came.

        Unknown arrival: nothing is added. An adapter that is named as the model is one.
        """
        if arrival_s is UNKNOWN or not self.events:
            return identity
        place = bisect.bisect_right(self.events, arrival_s, key=lambda event: event.time_s)
        key = (identity, place, server)
        known = self._kept.get(key)
        if known is None:
            if len(self._kept) >= 4096:
                self._kept.clear()
            known = self._kept[key] = self._completed(identity, self.events[:place], server)
        return known

    def _completed(
        self, identity: Identity, before: Sequence[Event], server: str | Unknown
    ) -> Identity:
        if identity.lora_name is UNKNOWN and identity.model in self.adapter_names:
            identity = replace(identity, lora_name=identity.model)
        if isinstance(identity.lora_name, str) and identity.model == identity.lora_name:
            identity = replace(identity, model=UNKNOWN)
        weights = adapter = None
        for event in reversed(before):
            if event.server is not None and event.server != server:
                continue
            if event.kind in ("start", "weights"):
                fits = event.model is None or identity.model in (UNKNOWN, event.model)
                if weights is None and fits:
                    weights = event
            elif (
                event.kind == "load-adapter"
                and adapter is None
                and event.lora_name == identity.lora_name
            ):
                adapter = event
        if weights is not None:
            identity = identity.filled(Identity(model_revision=weights.revision))
        if adapter is not None:
            facts = Identity(lora_revision=adapter.revision, lora_path=adapter.lora_path)
            identity = identity.filled(facts)
        return identity

    def epochs(
        self,
        arrival_s: Float64Array,
        server: Int32Array,
        servers: Sequence[str],
        *,
        empties_by_default: Sequence[bool],
        of_stores: bool = False,
    ) -> Int32Array:
        """Return int32 [requests]: how often the request's server had emptied its pool before.

        `empties_by_default` says for each server what a weight update does that doesn't tell. With
        `of_stores` only what reached external stores counts. Requests without a time: 0.
        """
        epochs = np.zeros(len(arrival_s), dtype=np.int32)
        for event in self.events:
            if event.kind not in ("start", "weights", "reset"):
                continue
            if of_stores and not event.empties_stores:
                continue
            later = arrival_s >= event.time_s
            if event.server is not None:
                number = servers.index(event.server) if event.server in servers else -1
                later &= server == number
            if event.kind == "weights" and event.empties_pool is None:
                defaults = np.array([*empties_by_default, False])
                later &= defaults[server]
            elif event.empties_pool is False:
                continue
            epochs[later] += 1
        return epochs


def read_events(paths: Iterable[Path]) -> Timeline:
    """Read event files. Raises ConfigurationError with all problems of all files."""
    events: list[Event] = []
    problems: list[str] = []
    for path in paths:
        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                problems.append(f"{path}: larger than 256 MiB; expected a file of events")
                continue
            text = path.read_bytes().decode("utf-8")
        except OSError as error:
            problems.append(f"{path}: can't be read: {error.strerror or error}")
            continue
        except UnicodeDecodeError as error:
            problems.append(f"{path}: byte {error.start} is not UTF-8; event files are UTF-8")
            continue
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.strip():
                continue
            source = f"{path}:{number}"
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                problems.append(f"{source}: is no JSON; expected one object a line")
                continue
            event = event_of(record, source)
            if isinstance(event, str):
                problems.append(f"{source}: {event}")
            else:
                events.append(event)
    if problems:
        raise ConfigurationError(problems)
    return timeline_of(events)


def timeline_of(events: Iterable[Event]) -> Timeline:
    """Return the timeline of events in any order."""
    return Timeline(events=tuple(sorted(events, key=lambda event: event.time_s)))


def event_of(record: object, source: str = "") -> Event | str:
    """Return the event of a decoded record, or what is wrong with it."""
    if not isinstance(record, Mapping):
        return "is no object; expected one event a line"
    name = record.get("event", record.get("type"))
    kind = _KINDS.get(name.lower()) if isinstance(name, str) else None
    if kind is None:
        return f"`event` is none that is known; known: {', '.join(sorted(_KINDS))}"
    time_s: float | Unknown = UNKNOWN
    for time_name in _TIME_NAMES:
        if time_name in record:
            time_s = parse_time(record[time_name])
            break
    if time_s is UNKNOWN:
        return "`timestamp` is missing or no time"
    for key in ("server", "model", "lora_name", "lora_path"):
        if record.get(key) is not None and not isinstance(record[key], str):
            return f"`{key}` is no text"
    lora_name = record.get("lora_name", record.get("name") if "adapter" in kind else None)
    if "adapter" in kind and not isinstance(lora_name, str):
        return "`lora_name` is missing; expected the adapter's name"
    empties = kind in ("start", "reset") or None
    for key in ("prefix_cache_reset", "flush_cache", "cache_reset"):
        if key in record:
            if not isinstance(record[key], bool):
                return f"`{key}` is neither true nor false"
            empties = record[key]
    return Event(
        time_s=time_s,
        kind=kind,
        server=record.get("server"),
        model=record.get("model"),
        revision=_revision(record),
        lora_name=lora_name,
        lora_path=record.get("lora_path", record.get("path", UNKNOWN)),
        empties_pool=empties,
        empties_stores=record.get("reset_external") is True,
        source=source,
    )


def _revision(record: Mapping[str, Any]) -> Known[str]:
    for name in _REVISION_NAMES:
        value = record.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return str(value)
    number = record.get("lora_int_id", record.get("int_id"))
    return f"int_id={number}" if isinstance(number, int) else UNKNOWN
