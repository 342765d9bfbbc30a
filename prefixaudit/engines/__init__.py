"""Profiles of engines' prefix caches, one TOML file an engine.

A file holds the facts of the oldest release known (its base) and `[[versions]]` tables, each with
`from` (and `before`, excluded, where a fact ended), `about` in one sentence, and the facts that
changed: adding a release is adding a table. The profile of a version is the base with every table
laid over it whose range holds the version, in order of `from`. See `_profile.py` for the fields.

    profile = load_profile("vllm@0.33.0")
    profile.key_fields, profile.missing_fields, profile.pool.eviction_regime, profile.notes
"""

from prefixaudit.engines._described import (
    DescribedProfile,
    EngineRow,
    Section,
    describe_engines,
    describe_profile,
)
from prefixaudit.engines._profile import ENGINES, load_profile

__all__ = [
    "ENGINES",
    "DescribedProfile",
    "EngineRow",
    "Section",
    "describe_engines",
    "describe_profile",
    "load_profile",
]
