"""Whom a request belongs to: a header, a field of the record, or a digest of the API key.

An API key never leaves this module: what comes out is a digest, stable between runs, so that
reports can be compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prefixaudit.core.request import Request
from prefixaudit.core.unknown import UNKNOWN, Known, Unknown

SOURCES: Final = ("header:NAME", "field:path.in.record", "api-key", "log")

# Where a key stands in what gateways log, as lower-case header names.
_KEY_HEADERS: Final = ("authorization", "x-api-key", "api-key", "x-goog-api-key")


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRule:
    """Where the tenant stands: the first of `sources` that the request has wins.

    header:NAME       a request header (any case)
    field:a.b.0.c     a field of the logged record; a number is a place in a list
    api-key           a digest of the key in Authorization, X-Api-Key, Api-Key
    log               what the log format itself calls the tenant
    """

    sources: tuple[str, ...]

    def tenant(self, request: Request) -> Known[str]:
        """Return the tenant, None where a field says null, UNKNOWN where no source has one."""
        for source in self.sources:
            value = _from_source(source, request)
            if value is not UNKNOWN:
                return value
        return UNKNOWN


def source_problem(source: str) -> str | None:
    """Say what is wrong with the text of a source, None where it is well formed."""
    kind, _, name = source.partition(":")
    if kind in ("header", "field") and name.strip(". ") == name and name:
        return None
    if source in ("api-key", "log"):
        return None
    return f"'{source}' is no tenant source; expected one of {', '.join(SOURCES)}"


def key_digest(key: str) -> str:
    """Return the name of a tenant known by its API key only: `key-` and 64 bits of its SHA-256."""
    scheme, _, rest = key.strip().partition(" ")
    secret = rest.strip() if rest and scheme.lower() in ("bearer", "basic", "token") else key
    digest = hashlib.sha256(secret.strip().encode("utf-8", errors="surrogatepass"))
    return f"key-{digest.hexdigest()[:16]}"


def _from_source(source: str, request: Request) -> Known[str]:
    kind, _, name = source.partition(":")
    if kind == "header":
        value = request.headers.get(name.lower())
        return UNKNOWN if value is None or value == "" else value
    if kind == "field":
        return _as_name(_field(request.record, name))
    if kind == "api-key":
        for header in _KEY_HEADERS:
            value = request.headers.get(header)
            if value:
                return key_digest(value)
        return UNKNOWN
    return request.identity.tenant


def _field(record: Any, path: str) -> Any:
    """Follow a dotted path into decoded JSON; UNKNOWN where it leads nowhere."""
    value = record
    for step in path.split("."):
        if isinstance(value, Mapping):
            if step not in value:
                return UNKNOWN
            value = value[step]
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            if not step.isdecimal() or int(step) >= len(value):
                return UNKNOWN
            value = value[int(step)]
        else:
            return UNKNOWN
    return value


def _as_name(value: object) -> Known[str]:
    if isinstance(value, Unknown) or value is None:
        return value
    if isinstance(value, str):
        return value if value else UNKNOWN
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return UNKNOWN  # a list, an object or a truth value names nobody
