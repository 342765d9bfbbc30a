"""What a new deployment does to keys, hits and findings, compared with an old one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prefixaudit.audit.facts import generic_profile, servers_of, tiers_of
from prefixaudit.core.audit import ServerFacts, TierFacts
from prefixaudit.core.finding import Finding
from prefixaudit.core.gate import Change, ChangeEffect
from prefixaudit.core.identity import IDENTITY_FIELDS
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.deployment import Deployment

_HIGHER_IS_BETTER: Final[Mapping[str, bool]] = {
    "token_hit_rate": True,
    "safe_hit_rate": True,
    "flops_saved_share": True,
    "cross_tenant_private_tokens": False,
    "unknown_share": False,
}
# Settings whose values could be private or are already told as something else.
_UNTOLD: Final = frozenset(("chat_template", "image"))
_GONE: Final = "not there"
_STAND_IN: Final = generic_profile().name


def changes_between(
    old: Deployment,
    new: Deployment,
    *,
    old_findings: Sequence[Finding],
    new_findings: Sequence[Finding],
    old_figures: Mapping[str, float],
    new_figures: Mapping[str, float],
) -> tuple[Change, ...]:
    """Return the changes: servers, then keys by tier, figures of the log, findings."""
    new_names = _new_names(old, new)
    return (
        *_servers(old, new, new_names),
        *_keys(old, new, new_names),
        *_figures(old_figures, new_figures),
        *_findings(old_findings, new_findings, new_names),
    )


def _new_names(old: Deployment, new: Deployment) -> dict[str, str]:
    """Return the new names of old servers: one server is one, whatever its files call it."""
    before, after = servers_of(old), servers_of(new)
    return {before[0].name: after[0].name} if len(before) == len(after) == 1 else {}


def _servers(old: Deployment, new: Deployment, new_names: Mapping[str, str]) -> Iterator[Change]:
    before = {new_names.get(server.name, server.name): server for server in servers_of(old)}
    after = {server.name: server for server in servers_of(new)}
    for name in dict.fromkeys((*before, *after)):
        if name not in after or name not in before:
            is_new = name in after
            yield Change(
                kind="server",
                subject=name,
                what="server",
                before=_GONE if is_new else _engine(before[name]),
                after=_engine(after[name]) if is_new else _GONE,
            )
            continue
        yield from _server(before[name], after[name])


def _server(old: ServerFacts, new: ServerFacts) -> Iterator[Change]:
    rows: list[tuple[str, str, str]] = [("engine", _engine(old), _engine(new))]
    rows += [
        (name, _shown(getattr(old.identity, name)), _shown(getattr(new.identity, name)))
        for name in IDENTITY_FIELDS
        if name not in ("cache_salt", "extra_key", "user")
    ]
    rows.append(("max_model_len", _shown(old.max_model_len), _shown(new.max_model_len)))
    told = {name for name, before, after in rows if before != after}
    for name in sorted({*old.settings, *new.settings} - _UNTOLD - told):
        before, after = old.settings.get(name, UNKNOWN), new.settings.get(name, UNKNOWN)
        if UNKNOWN in (before, after) and {None, False} & {before, after}:
            continue  # that a file now says what is off is no change of what runs
        rows.append((name, _shown(before), _shown(after)))
    for name, before_text, after_text in rows:
        if before_text != after_text:
            yield Change(
                kind="server", subject=new.name, what=name, before=before_text, after=after_text
            )


def _keys(old: Deployment, new: Deployment, new_names: Mapping[str, str]) -> Iterator[Change]:
    before = {tier.name: tier for tier in _tiers(old)}
    after = {tier.name: tier for tier in _tiers(new)}
    first_pools, second_pools = _own_pools(before), _own_pools(after)
    if len(first_pools) == len(second_pools) == 1:
        before[second_pools[0].name] = before.pop(first_pools[0].name)
    for name in dict.fromkeys((*before, *after)):
        first, second = before.get(name), after.get(name)
        if first is None or second is None:
            tier = second or first
            assert tier is not None
            fields = ", ".join(tier.tier.key_fields) or "tokens alone"
            yield Change(
                kind="key",
                subject=name,
                what="tier",
                before=_GONE if first is None else f"keyed by {fields}",
                after=_GONE if second is None else f"keyed by {fields}",
            )
            continue
        yield from _key(first, second, new_names)


def _own_pools(tiers: Mapping[str, TierFacts]) -> list[TierFacts]:
    return [tier for tier in tiers.values() if tier.tier.kind == "local-pool"]


def _key(old: TierFacts, new: TierFacts, new_names: Mapping[str, str]) -> Iterator[Change]:
    if _STAND_IN in (old.profile.name, new.profile.name):
        return  # an engine that isn't given has no key to compare
    before = {part.field: part for part in old.tier.key}
    after = {part.field: part for part in new.tier.key}
    for field in dict.fromkeys((*before, *after)):
        first, second = before.get(field), after.get(field)
        if first == second:
            continue
        effect: ChangeEffect = "neutral"
        if first is None or second is None:
            effect = "better" if first is None else "worse"
        yield Change(
            kind="key",
            subject=new.name,
            what=f"{field} in the key",
            before="no" if first is None else f"{first.placement}: {first.form}",
            after="no" if second is None else f"{second.placement}: {second.form}",
            effect=effect,
        )
    rows = [
        ("block size", f"{old.block_size} tokens", f"{new.block_size} tokens"),
        ("capacity", _blocks(old.capacity_blocks), _blocks(new.capacity_blocks)),
        (
            "servers",
            ", ".join(new_names.get(name, name) for name in old.servers),
            ", ".join(new.servers),
        ),
        ("hash root", _root(old), _root(new)),
        ("hash algorithm", _algorithm(old), _algorithm(new)),
    ]
    for what, before_text, after_text in rows:
        if before_text != after_text:
            yield Change(
                kind="key", subject=new.name, what=what, before=before_text, after=after_text
            )
    warmth = (old.block_size, _algorithm(old), _root(old), old.tier.key)
    if (new.block_size, _algorithm(new), _root(new), new.tier.key) != warmth and (
        new.tier.kind == "external-store"
    ):
        yield Change(
            kind="key",
            subject=new.name,
            what="blocks that are stored",
            before="found",
            after="not found again where the key's text changed",
            effect="worse",
        )


def _figures(old: Mapping[str, float], new: Mapping[str, float]) -> Iterator[Change]:
    for name, higher_is_better in _HIGHER_IS_BETTER.items():
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        effect: ChangeEffect = "neutral"
        if before is not None and after is not None:
            effect = "better" if (after > before) == higher_is_better else "worse"
        yield Change(
            kind="hits",
            subject="log",
            what=name,
            before=_figure(name, before),
            after=_figure(name, after),
            effect=effect,
        )


def _findings(
    old: Iterable[Finding], new: Iterable[Finding], new_names: Mapping[str, str]
) -> Iterator[Change]:
    before = {_identity(finding, new_names): finding for finding in old}
    after = {_identity(finding, {}): finding for finding in new}
    for key in dict.fromkeys((*after, *before)):
        first, second = before.get(key), after.get(key)
        if first is not None and second is not None:
            tokens = first.observation.num_tokens, second.observation.num_tokens
            if tokens[0] != tokens[1]:
                yield Change(
                    kind="finding",
                    subject=f"{second.rule}: {second.observation.subject}",
                    what="tokens",
                    before=f"{tokens[0]:,}",
                    after=f"{tokens[1]:,}",
                    effect="better" if tokens[1] < tokens[0] else "worse",
                )
            continue
        finding = second or first
        assert finding is not None
        label = finding.severity.label
        if finding.observation.verdict == "inconclusive":
            label = f"inconclusive ({finding.severity_if_true.label} if true)"
        yield Change(
            kind="finding",
            subject=f"{finding.rule}: {finding.observation.subject}",
            what="finding",
            before="" if first is None else label,
            after="" if second is None else label,
            effect="worse" if first is None else "better",
        )


def _identity(finding: Finding, new_names: Mapping[str, str]) -> tuple[str, str, str]:
    subject = finding.observation.subject
    return finding.rule, new_names.get(subject, subject), finding.observation.verdict


def _tiers(deployment: Deployment) -> tuple[TierFacts, ...]:
    from prefixaudit.analysis.sizing import block_size_of

    size, _ = block_size_of(deployment)
    capacity = deployment.capacity
    blocks = capacity.in_blocks(size, None) if capacity is not None else None
    return tiers_of(deployment, block_size=size, capacity_blocks=blocks)


def _engine(server: ServerFacts) -> str:
    engine = server.engine
    if engine is None:
        return "not known"
    return f"{engine.name} {engine.version or '(version not known)'}"


def _shown(value: object) -> str:
    if value is UNKNOWN:
        return "not known"
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _blocks(count: int | None) -> str:
    return "no limit" if count is None else f"{count:,} blocks"


def _root(tier: TierFacts) -> str:
    return "none" if tier.tier.hash is None else tier.tier.hash.root


def _algorithm(tier: TierFacts) -> str:
    """Return the algorithm that is set, else the release's default."""
    for name in ("prefix_caching_hash_algo", "pre_caching_hash_algorithm", "hash_algorithm"):
        value = tier.settings.get(name)
        if isinstance(value, str):
            return value
    hashing = tier.tier.hash
    return hashing.algorithms[0] if hashing is not None and hashing.algorithms else "none"


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return "not known"
    return f"{value:,.0f}" if name.endswith("_tokens") else f"{100 * value:.2f} %"
