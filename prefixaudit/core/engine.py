"""What is known of an engine's prefix cache, for one version: the value of an engine profile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """The facts of one engine and version that decide hits and keys.

    `version` is the version asked for, `profile_version` the range's first release that the facts
    are taken from. `key_fields` are the identity fields in the key of the engine's own (local)
    pool. At least `min_recomputed_tokens` of a prompt are computed even on a full hit.
    """

    name: str
    version: str | None
    default_block_size: int
    min_recomputed_tokens: int
    key_fields: tuple[str, ...]
    notes: tuple[str, ...] = ()
