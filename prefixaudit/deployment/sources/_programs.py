"""From processes to a sketch: each program we know to its server, tiers or note."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from prefixaudit.deployment.sources._options import OptionTable, parse_options
from prefixaudit.deployment.sources._process import (
    Process,
    is_further_rank,
    processes_of,
    program,
    takes_server_options,
)
from prefixaudit.deployment.sources._sglang import sglang_server
from prefixaudit.deployment.sources._shell import Word
from prefixaudit.deployment.sources._sketch import Attachments, Piece, Sketch
from prefixaudit.deployment.sources._vllm import vllm_server

_READERS = {"vllm": vllm_server, "sglang": sglang_server}
_CACHE_SERVER = OptionTable(kept={"chunk-size": "integer"})


def sketch_of(processes: Iterable[Process], attachments: Attachments) -> Sketch:
    """Return servers, the stores that they use, and the routers in front of them."""
    servers: list[Piece] = []
    tiers: list[Piece] = []
    routers: list[Piece] = []
    unknown: list[str] = []
    names: dict[str, int] = {}
    cache_servers: list[tuple[Process, Sequence[Word]]] = []
    for process in processes:
        found = program(process.words)
        if found is None:
            continue
        kind, words = found
        reader = _READERS.get(kind)
        if reader is not None and is_further_rank(words):
            continue  # a part of a server that is described elsewhere
        if reader is not None:
            number = names[process.name] = names.get(process.name, 0) + 1
            if number > 1:
                process = replace(process, name=f"{process.name}-{number}")
            server, own = reader(process, attachments)
            servers.append(server)
            tiers += own
        elif kind == "lmcache":
            cache_servers.append((process, words))
        elif kind == "dynamo" and any(word.text == "kv" for word in words):
            routers.append(_router(process, "dynamo"))
        elif kind == "llm-d":
            routers.append(_router(process, "llm-d"))
            unknown.append(f"{process.name}: whether the router's scorer looks at prefixes")
    if len(cache_servers) == 1:
        tiers = [_kept_by(piece, *cache_servers[0]) for piece in tiers]
    return Sketch(servers=tuple(servers), tiers=(*tiers, *routers), unknown=tuple(unknown))


def _kept_by(tier: Piece, process: Process, words: Sequence[Word]) -> Piece:
    """Add what the only cache server in the file says of a tier of cache servers."""
    if tier.data["kind"] != "lmcache-multiprocess":
        return tier
    data = dict(tier.data)
    unknown = tier.unknown
    if "lmcache" in process.versions:
        data["version"] = process.versions["lmcache"]
        unknown = tuple(note for note in unknown if note != "version of lmcache")
    chunk = parse_options(words, _CACHE_SERVER).values.get("chunk-size")
    if chunk is not None:
        data["block_size"] = chunk
    return replace(tier, data=data, unknown=unknown)


def sketch_of_containers(containers: Iterable[Process], attachments: Attachments) -> Sketch:
    """Return the sketch of containers; one of unknown kind with a server's options is named."""
    processes: list[Process] = []
    unknown: list[str] = []
    for container in containers:
        found = list(processes_of(container))
        if not found and takes_server_options(container.words):
            unknown.append(f"{container.name}: what image {container.image or 'of its own'} runs")
        processes += found
    sketch = sketch_of(processes, attachments)
    return replace(sketch, unknown=(*sketch.unknown, *unknown))


def _router(process: Process, kind: str) -> Piece:
    data = {"kind": kind, "name": process.name}
    if kind in process.versions:
        data["version"] = process.versions[kind]
    return Piece(data=data, location=process.location)
