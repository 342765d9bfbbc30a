"""An engine profile as sections of lines for a reader: what `list` and `explain` print."""

from __future__ import annotations

from dataclasses import dataclass

from prefixaudit.core.engine import EngineProfile, Tier
from prefixaudit.core.identity import field_kind
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.engines._profile import ENGINES, load_profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and (label, text) rows in reading order; a label may be empty."""

    title: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedProfile:
    """A profile for a reader: its headline, and sections in reading order."""

    title: str
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """One engine of `list engines`."""

    name: str
    title: str
    oldest_version: str | None
    newest_version: str | None
    tiers: tuple[str, ...]

    @property
    def versions(self) -> str:
        """Return the releases that are known, as text; "-" where none are told apart."""
        if self.oldest_version is None:
            return "-" if self.newest_version is None else f"up to {self.newest_version}"
        return f"{self.oldest_version} to {self.newest_version}"


def describe_engines() -> tuple[EngineRow, ...]:
    """Return one row for each engine with a profile, by name."""
    rows = []
    for name in ENGINES:
        profile = load_profile(name)
        rows.append(
            EngineRow(
                name=name,
                title=profile.title,
                oldest_version=profile.oldest_version,
                newest_version=profile.newest_version,
                tiers=tuple(f"{tier.name} ({tier.kind})" for tier in profile.tiers),
            )
        )
    return tuple(rows)


def describe_profile(profile: EngineProfile) -> DescribedProfile:
    """Return all facts of a profile in reading order: keys and what they lack come first."""
    version = f" {profile.facts_version}" if profile.facts_version else ""
    sections = [Section(title="Notes", rows=tuple(("", note) for note in profile.notes))]
    for tier in profile.tiers:
        sections += _tier_sections(tier)
    sections += [_lookup_section(profile), _groups_section(profile), _events_section(profile)]
    sections += [
        Section(title="Further facts", rows=tuple(("", fact) for fact in profile.facts)),
        Section(
            title="What releases changed",
            rows=tuple(
                (
                    change.since if change.until is None else f"{change.since} to < {change.until}",
                    change.about,
                )
                for change in profile.changes
            ),
        ),
        Section(title="Sources", rows=tuple(("", source) for source in profile.sources)),
    ]
    return DescribedProfile(
        title=f"{profile.title}{version}",
        sections=tuple(section for section in sections if section.rows),
    )


def _tier_sections(tier: Tier) -> list[Section]:
    held_apart = set(tier.process_fields)
    missing = [name for name in tier.missing_fields if name not in held_apart]
    rows = [(part.field, f"{part.placement}: {part.form}") for part in tier.key]
    if tier.hash is not None:
        hashing = tier.hash
        algorithms = ", ".join(hashing.algorithms)
        if hashing.algorithms:
            rows.append(("algorithms", f"{algorithms} (default first)"))
        rows += [
            ("recipe", hashing.recipe),
            ("root", hashing.root),
            ("root without seed", hashing.unset_seed),
            ("published as", hashing.published),
        ]
    rows += [("ambiguous", f"{' / '.join(a.fields)}: {a.how}") for a in tier.ambiguities]
    lacking = [(name, f"{field_kind(name)} identity") for name in missing]
    lacking += [
        (name, "not in the key; constant within one process")
        for name in tier.missing_fields
        if name in held_apart
    ]
    if not tier.media_in_key:
        lacking.append(("media", "content identity"))
    lacking += [("", text) for text in tier.not_in_key]
    return [
        Section(title=f"Key of {tier.name}: {tier.title} ({tier.kind})", rows=tuple(rows)),
        Section(title=f"Not in the key of {tier.name}", rows=tuple(lacking)),
    ]


def _lookup_section(profile: EngineProfile) -> Section:
    rows = [
        ("block size", f"{profile.default_block_size} tokens. {profile.block_size_rule}".strip()),
        ("computed anyway", f"{_computed(profile)} {profile.last_token_rule}".strip()),
    ]
    pool = profile.pool
    if pool is not None:
        rows += [
            ("hittable once", pool.visibility),
            ("eviction", pool.eviction_regime),
            ("policies", f"{', '.join(pool.policies)} (default first)"),
            ("one block a hash", "yes" if pool.is_deduplicated else "no"),
            ("reserved blocks", str(pool.num_reserved_blocks)),
            ("answers", pool.cached_answers),
        ]
        if pool.eviction_amount is not None:
            rows.append(("eviction amount", pool.eviction_amount))
        if pool.lookup_unit_tokens is not None:
            rows.append(("unit of a hit", f"{pool.lookup_unit_tokens} tokens"))
        if pool.drops_block_with_eagle:
            rows.append(("EAGLE", "drops the last matched block"))
        if pool.has_lookahead_hashes:
            rows.append(("lookahead hashes", "with EAGLE-like drafting and no KV connector"))
    return Section(title="Lookup and eviction", rows=tuple(rows))


def _computed(profile: EngineProfile) -> str:
    number = profile.min_recomputed_tokens
    return f"At least {number} token{'' if number == 1 else 's'} of a prompt." if number else "0."


def _groups_section(profile: EngineProfile) -> Section:
    groups = profile.groups
    if groups is None:
        return Section(title="Groups of layers", rows=())
    interval = groups.default_retention_interval
    rows = [("retention", "dense" if interval is None else f"interval {interval}")]
    if groups.larger_block_hash is not None:
        rows.append(("larger blocks", f"{groups.larger_block_hash} of the small hashes"))
    rows += [("", rule) for rule in groups.rules]
    return Section(title="Groups of layers", rows=tuple(rows))


def _events_section(profile: EngineProfile) -> Section:
    events = profile.events
    if events is None:
        return Section(title="Events", rows=())
    encoding = "unknown" if events.encoding is UNKNOWN else events.encoding or "none"
    rows = [("encoding", encoding), ("block id", events.block_id)]
    if events.block_stored:
        rows.append(("BlockStored", ", ".join(events.block_stored)))
    if events.block_removed:
        rows.append(("BlockRemoved", ", ".join(events.block_removed)))
    return Section(title="Events", rows=tuple(rows))
