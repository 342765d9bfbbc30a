"""Stores beyond a server's own pool, as connectors and their configurations name them.

Two servers share a store where kind and address are equal. An address that isn't known stays
unknown and is named: then it can't be said who shares the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from prefixaudit.core.finding import Location
from prefixaudit.deployment.sources._options import without_credentials
from prefixaudit.deployment.sources._server import ServerDraft
from prefixaudit.deployment.sources._sketch import Attachments, Piece, SourceFile
from prefixaudit.deployment.sources._yaml import line_of, yaml_or_none

_CONNECTORS: Final[Mapping[str, str]] = {
    "LMCacheConnectorV1": "lmcache",
    "LMCacheConnector": "lmcache",
    "LMCacheConnectorV1Dynamic": "lmcache",
    "LMCacheMPConnector": "lmcache-multiprocess",
    "MooncakeStoreConnector": "mooncake",
    "OffloadingConnector": "offload",
}
# These hand blocks from one server to another and keep none.
_TRANSFERS: Final = frozenset(
    ("NixlConnector", "MooncakeConnector", "P2pNcclConnector", "MoRIIOConnector")
)
_FOLDER_KEYS: Final = ("shared_storage_path", "root_dir", "storage_path", "directory", "path")

# LMCache's configuration: settings of the tier by key; a variable is LMCACHE_ and the key.
_LMCACHE_SETTINGS: Final[Mapping[str, type]] = {
    "pre_caching_hash_algorithm": str,
    "save_unfull_chunk": bool,
    "save_decode_cache": bool,
    "enable_blending": bool,
    "local_cpu": bool,
    "max_local_cpu_size": float,
    "max_local_disk_size": float,
    "enable_p2p": bool,
    "enable_controller": bool,
}
_TRUE: Final = frozenset(("true", "1", "yes", "on"))


def vllm_stores(
    draft: ServerDraft,
    connector: Any,
    *,
    complete: bool,
    attachments: Attachments | None,
) -> list[Piece]:
    """Return the tiers of a --kv-transfer-config, and note the connector in the settings."""
    if not isinstance(connector, Mapping):
        if connector is None and complete and draft.settings.get("kv_offloading_backend") is None:
            draft.settings |= {"kv_connector": None, "kv_role": None}
        if draft.settings.get("kv_offloading_backend") == "lmcache" and attachments is not None:
            return [_lmcache(draft, {}, attachments)]
        return []
    for key in ("kv_connector", "kv_role"):
        value = connector.get(key)
        draft.settings[key] = value if isinstance(value, str) else None
    members = list(_connectors(connector))
    draft.settings["kv_connectors"] = [name for name, _ in members]
    tiers: list[Piece] = []
    for name, extra in members:
        kind = _CONNECTORS.get(name)
        if kind == "lmcache" and attachments is not None:
            tiers.append(_lmcache(draft, extra, attachments))
        elif kind == "lmcache-multiprocess":
            tiers.append(_lmcache_server(draft, extra))
        elif kind == "mooncake":
            tiers.append(_mooncake(draft, extra, attachments or Attachments()))
        elif kind == "offload":
            folder = _folder(extra)
            if folder is not None:
                tiers.append(_tier(draft, "vllm-file-tier", path=folder))
        elif name not in _TRANSFERS:
            draft.unknown.append(f"what the keys of {name} hold")
    return tiers


def sglang_stores(
    draft: ServerDraft, values: Mapping[str, Any], attachments: Attachments
) -> list[Piece]:
    """Return the tiers of an SGLang server's HiCache and LMCache options."""
    tiers = []
    backend = values.get("hicache-storage-backend")
    extra = values.get("hicache-storage-backend-extra-config")
    if backend == "mooncake":
        tiers.append(_mooncake(draft, extra or {}, attachments, kind="mooncake"))
    elif isinstance(backend, str):
        path = _folder(extra or {})
        if path is None and backend in ("file", "nixl", "hf3fs"):
            is_known, folder = draft.process.variable("SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR")
            path = folder if is_known else None
        tiers.append(_tier(draft, "sglang-hicache", path=path, settings={"backend": backend}))
    if values.get("enable-lmcache"):
        file = values.get("lmcache-config-file")
        tiers.append(_lmcache(draft, {}, attachments, config_path=file))
    return tiers


def lmcache_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return block_size, path and settings of a tier as an LMCache configuration says them."""
    data: dict[str, Any] = {}
    chunk = config.get("chunk_size")
    if isinstance(chunk, str) and chunk.isdecimal():
        chunk = int(chunk)
    if isinstance(chunk, int) and not isinstance(chunk, bool) and chunk > 0:
        data["block_size"] = chunk
    settings: dict[str, Any] = {}
    for key, kind in _LMCACHE_SETTINGS.items():
        if key in config:
            value = _typed(config[key], kind)
            if value is not None:
                settings[key] = value
    for key in ("remote_url", "local_disk"):
        address = config.get(key)
        if isinstance(address, str) and address.strip() not in ("", "null", "None"):
            data.setdefault("path", without_credentials(address.strip()))
            settings[key] = without_credentials(address.strip())
    if settings:
        data["settings"] = settings
    return data


def _connectors(connector: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    name = connector.get("kv_connector")
    extra = connector.get("kv_connector_extra_config")
    extra = extra if isinstance(extra, Mapping) else {}
    inner = extra.get("connectors")
    if name == "MultiConnector" and isinstance(inner, list):
        for item in inner:
            if isinstance(item, Mapping):
                yield from _connectors(item)
    elif isinstance(name, str):
        yield name, extra


def _lmcache(
    draft: ServerDraft,
    extra: Mapping[str, Any],
    attachments: Attachments,
    config_path: str | None = None,
) -> Piece:
    """Return the in-process store: its configuration file, then LMCACHE_ variables over it."""
    unknown: list[str] = []
    config: dict[str, Any] = {}
    location: Location | None = None
    is_known, path = draft.process.variable("LMCACHE_CONFIG_FILE")
    path = config_path or path
    file: SourceFile | None = None
    if path is not None:
        file = attachments.find(path)
        if file is None:
            unknown.append(f"LMCache's {PurePosixPath(path).name}: give that file too")
    elif attachments.lmcache:
        file = attachments.lmcache[0]
        if len(attachments.lmcache) > 1:
            unknown.append(f"which LMCache file it reads; {file.path} was taken")
    elif not is_known:
        unknown.append("LMCache's configuration (LMCACHE_CONFIG_FILE isn't in the file)")
    if file is not None:
        documents = yaml_or_none(file)
        if documents and isinstance(documents[0], Mapping):
            config |= documents[0]
            line = file.first_line + line_of(documents[0]) - 1
            location = Location(path=file.path, line=line)
    config |= {
        key.removeprefix("lmcache."): value
        for key, value in extra.items()
        if key.startswith("lmcache.")
    }
    for variable, value in draft.process.environment.items():
        if variable.startswith("LMCACHE_") and value is not None:
            config[variable.removeprefix("LMCACHE_").lower()] = value
        elif variable.startswith("LMCACHE_"):
            unknown.append(f"{variable} is set, but its value isn't in the file")
    values = lmcache_values(config)
    return _tier(
        draft,
        "lmcache",
        path=values.get("path"),
        block_size=values.get("block_size"),
        settings=values.get("settings", {}),
        version=draft.process.versions.get("lmcache"),
        unknown=unknown,
        location=location,
        is_private=values.get("path") is None and not unknown,
    )


def _lmcache_server(draft: ServerDraft, extra: Mapping[str, Any]) -> Piece:
    host, port = extra.get("lmcache.mp.host"), extra.get("lmcache.mp.port")
    path = None
    if isinstance(host, str):
        address = without_credentials(host.removeprefix("tcp://"))
        path = address if port is None else f"{address}:{port}"
    return _tier(
        draft, "lmcache-multiprocess", path=path, version=draft.process.versions.get("lmcache")
    )


def _mooncake(
    draft: ServerDraft,
    extra: Mapping[str, Any],
    attachments: Attachments,
    kind: str = "mooncake",
) -> Piece:
    config: dict[str, Any] = {}
    unknown: list[str] = []
    for variable in ("MOONCAKE_CONFIG_PATH", "SGLANG_HICACHE_MOONCAKE_CONFIG_PATH"):
        _, path = draft.process.variable(variable)
        if path is None:
            continue
        file = attachments.find(path)
        documents = None if file is None else yaml_or_none(file)
        if documents and isinstance(documents[0], Mapping):
            config |= documents[0]
        else:
            unknown.append(f"Mooncake's {PurePosixPath(path).name}: give that file too")
    for variable in ("MOONCAKE_MASTER", "MOONCAKE_MASTER_SERVER"):
        _, value = draft.process.variable(variable)
        if value is not None:
            config["master_server_address"] = value
    config |= extra
    address = config.get("master_server_address")
    path = without_credentials(address) if isinstance(address, str) else None
    settings = {
        key: value
        for key in ("cache_prefix", "extra_backend_tag")
        if isinstance(value := config.get(key), str)
    }
    return _tier(draft, kind, path=path, settings=settings, unknown=unknown)


def _folder(extra: Mapping[str, Any]) -> str | None:
    """Return the folder that a connector's options name, at any depth."""
    for key in _FOLDER_KEYS:
        if isinstance(value := extra.get(key), str):
            return without_credentials(value)
    for value in extra.values():
        inner = value if isinstance(value, list) else [value]
        for item in inner:
            if isinstance(item, Mapping) and (found := _folder(item)) is not None:
                return found
    return None


def _tier(
    draft: ServerDraft,
    kind: str,
    *,
    path: str | None,
    block_size: int | None = None,
    settings: Mapping[str, Any] | None = None,
    version: str | None = None,
    unknown: list[str] | None = None,
    location: Location | None = None,
    is_private: bool = False,
) -> Piece:
    notes = list(unknown or ())
    data: dict[str, Any] = {"kind": kind, "servers": [draft.process.name]}
    if path is not None:
        data["path"] = path
    elif not is_private:
        notes.append("its address: whether other servers share it")
    if version is not None:
        data["version"] = version
    elif kind.startswith("lmcache"):
        notes.append("version of lmcache")
    if block_size is not None:
        data["block_size"] = block_size
    if settings:
        data["settings"] = dict(sorted(settings.items()))
    return Piece(data=data, location=location or draft.process.location, unknown=tuple(notes))


def _typed(value: Any, kind: type) -> Any:
    if kind is bool:
        if isinstance(value, str):
            return value.strip().lower() in _TRUE
        return value if isinstance(value, bool) else None
    if kind is float:
        try:
            return float(value)
        except (TypeError, ValueError):
            return None
    return value if isinstance(value, str) else None
