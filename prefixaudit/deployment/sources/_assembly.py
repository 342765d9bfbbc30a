"""Puts sketches of several files together: names, shared stores, prefixaudit.toml on top."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packaging.version import InvalidVersion, Version

from prefixaudit.core.finding import Location
from prefixaudit.deployment.sources import SOURCES
from prefixaudit.deployment.sources._sketch import (
    Attachments,
    DeploymentSource,
    Piece,
    Sketch,
    SourceFile,
)
from prefixaudit.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """The tables of a prefixaudit.toml, as data.

    `locations` are the places of servers and tiers by name; `unknown` what isn't known of each
    ("" is the whole).
    """

    data: Mapping[str, Any]
    locations: Mapping[str, Location]
    unknown: Mapping[str, tuple[str, ...]]


def assemble(
    files: Sequence[SourceFile],
    base: Mapping[str, Any],
    *,
    optional: Collection[str] = (),
) -> Assembled:
    """Read deployment files and lay the tables of a prefixaudit.toml (`base`) over them.

    Servers and tiers of one name are one; the TOML's word wins. Raises ConfigurationError for files
    of no known kind, all at once; those whose paths are `optional` are left aside.
    """
    kinds = _kinds(files, optional)
    by_name: dict[str, SourceFile] = {}
    for file, kind in kinds:
        if kind.attached is not None:
            by_name |= kind.attached(file)
    attachments = Attachments(
        by_name=by_name,
        lmcache=tuple(file for file, kind in kinds if kind is SOURCES["lmcache-config"]),
    )
    sketches = [kind.read(file, attachments) for file, kind in kinds if not kind.is_attachment]
    sketches += [
        kind.read(file, attachments)
        for file, kind in kinds
        if kind.is_attachment and not _is_found(file, kind, attachments)
    ]
    servers, tiers = _renamed(sketches)
    if files and not servers and not base.get("server"):
        raise ConfigurationError(
            f"{file.path}: starts no server that is known; expected vLLM or SGLang"
            for file in files
        )
    tiers = _named(_shared(tiers), {piece.data["name"] for piece in servers})
    locations = {piece.data["name"]: piece.location for piece in (*servers, *tiers)}
    unknown = {
        piece.data["name"]: tuple(dict.fromkeys(piece.unknown)) for piece in (*servers, *tiers)
    }
    unknown[""] = tuple(note for sketch in sketches for note in sketch.unknown)
    data = copy.deepcopy(dict(base))
    for key, pieces in (("server", servers), ("tier", tiers)):
        _lay_under(data, key, pieces, locations)
    return Assembled(data=data, locations=locations, unknown=unknown)


def _kinds(
    files: Sequence[SourceFile], optional: Collection[str]
) -> list[tuple[SourceFile, DeploymentSource]]:
    ordered = sorted(SOURCES.values(), key=lambda source: source.order)
    problems: list[str] = []
    result = []
    for file in files:
        kind = next((kind for kind in ordered if kind.recognises(file)), None)
        if kind is None and file.path in optional:
            continue
        if kind is None:
            titles = "; ".join(source.title for source in ordered)
            problems.append(f"{file.path}: starts no server that is known; expected {titles}")
        else:
            result.append((file, kind))
    if problems:
        raise ConfigurationError(problems)
    return result


def _is_found(file: SourceFile, kind: DeploymentSource, attachments: Attachments) -> bool:
    assert kind.attached is not None
    return any(name in attachments.found for name in kind.attached(file))


def _renamed(sketches: Sequence[Sketch]) -> tuple[list[Piece], list[Piece]]:
    """Give servers of all files names of their own: the second `vllm` is `vllm-2`."""
    servers: list[Piece] = []
    tiers: list[Piece] = []
    taken: set[str] = set()
    for sketch in sketches:
        new_names: dict[str, str] = {}
        for piece in sketch.servers:
            name = piece.data["name"]
            number = 1
            while (new := name if number == 1 else f"{name}-{number}") in taken:
                number += 1
            taken.add(new)
            new_names[name] = new
            servers.append(replace(piece, data={**piece.data, "name": new}))
        for piece in sketch.tiers:
            data = dict(piece.data)
            if "servers" in data:
                data["servers"] = [new_names.get(name, name) for name in data["servers"]]
            tiers.append(replace(piece, data=data))
    return servers, tiers


def _shared(tiers: Sequence[Piece]) -> list[Piece]:
    """Join the tiers that are one store: equal kind, address and block size."""
    result: list[Piece] = []
    place: dict[tuple[object, ...], int] = {}
    for piece in tiers:
        data = piece.data
        if "path" not in data or "servers" not in data:
            result.append(piece)
            continue
        key = (data["kind"], data["path"], data.get("block_size"))
        if key not in place:
            place[key] = len(result)
            result.append(piece)
            continue
        first = result[place[key]]
        joined = dict(first.data)
        joined["servers"] = list(dict.fromkeys((*first.data["servers"], *data["servers"])))
        version = _older(first.data.get("version"), data.get("version"))
        if version is not None:
            joined["version"] = version
        notes = [*first.unknown, *piece.unknown]
        settings = {**data.get("settings", {}), **first.data.get("settings", {})}
        differing = [
            name
            for name, value in settings.items()
            if data.get("settings", {}).get(name, value) != value
        ]
        notes += [f"{name}: the servers say different things" for name in differing]
        settings = {name: value for name, value in settings.items() if name not in differing}
        if settings:
            joined["settings"] = dict(sorted(settings.items()))
        result[place[key]] = replace(first, data=joined, unknown=tuple(notes))
    return result


def _older(first: str | None, second: str | None) -> str | None:
    versions = [version for version in (first, second) if version is not None]
    try:
        return min(versions, key=Version, default=None)
    except InvalidVersion:
        return first


def _named(tiers: Sequence[Piece], servers: Collection[str]) -> list[Piece]:
    """Name tiers by their kind, and by their servers where a kind occurs more than once.

    None has the name of a server, as a router in a server's own pod would.
    """
    counts: dict[str, int] = {}
    for piece in tiers:
        counts[piece.data["kind"]] = counts.get(piece.data["kind"], 0) + 1
    result = []
    taken = set(servers)
    for piece in tiers:
        kind = piece.data["kind"]
        name = piece.data.get("name", kind)
        if name in servers:
            name = kind
        if counts[kind] > 1 and "name" not in piece.data:
            name = f"{kind} of {', '.join(piece.data.get('servers', ())) or 'all'}"
        number = 2
        while name in taken:
            name = f"{kind} {number}"
            number += 1
        taken.add(name)
        result.append(
            replace(
                piece, data={"name": name} | {k: v for k, v in piece.data.items() if k != "name"}
            )
        )
    return result


def _lay_under(
    data: dict[str, Any], key: str, pieces: Sequence[Piece], locations: dict[str, Location]
) -> None:
    """Put pieces under the [[key]] tables: those of one name are filled up, others appended."""
    tables = data.get(key, [])
    if not isinstance(tables, list):
        return  # a problem that the reader reports
    by_name = {table.get("name"): table for table in tables if isinstance(table, dict)}
    for piece in pieces:
        plain = _with_false(piece.data)
        table = by_name.get(piece.data["name"])
        if table is None:
            tables.append(plain)
        else:
            _fill(table, plain)
    if tables:
        data[key] = tables


def _fill(table: dict[str, Any], below: Mapping[str, Any]) -> None:
    for key, value in below.items():
        if key not in table:
            table[key] = value
        elif isinstance(table[key], dict) and isinstance(value, Mapping):
            _fill(table[key], value)


def _with_false(value: Any) -> Any:
    """Return data as TOML has it: None (known to be unset) is false."""
    if value is None:
        return False
    if isinstance(value, Mapping):
        return {key: _with_false(item) for key, item in value.items()}
    return value
