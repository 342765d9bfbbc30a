"""A server runs a release, with settings and a model, that have a known fault.

Found: the engine's version lies in the range and all facts in `needs` hold. Inconclusive: some of
them aren't known and none is false. One observation for each server, under its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixaudit.audit.needs import answer_needs, is_in_range, names_of
from prefixaudit.audit.server_facts import engine_of
from prefixaudit.core.audit import AuditSubject, ServerFacts
from prefixaudit.core.finding import Observation
from prefixaudit.core.rule import Parameter, PredicateSpec


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    for server in subject.servers:
        observation = _of_server(server, subject, params)
        if observation is not None:
            yield observation


def _of_server(
    server: ServerFacts, subject: AuditSubject, params: Mapping[str, Any]
) -> Observation | None:
    wanted = names_of(params.get("engines"))
    name, version = engine_of(server)
    if wanted and name not in wanted:
        return None
    others = names_of(params.get("other_than"))
    if others and (name is None or name in others):
        return None
    in_range = is_in_range(version, params.get("since"), params.get("before"))
    if in_range is False:
        return None
    answer = answer_needs(params.get("needs", {}), server, subject)
    if answer.holds is False:
        return None
    unknown = ((f"version of {name}",) if in_range is None else ()) + answer.unknown
    runs = f"{server.name} runs {name or 'an engine'}" + (f" {version}" if version else "")
    if unknown and params.get("only_if_known", False):
        return None
    if unknown:
        return Observation(
            subject=server.name,
            message=f"{runs}; not known: {', '.join(unknown)}",
            verdict="inconclusive",
            location=server.location,
            facts={"server": server.name, "unknown_fields": list(unknown)},
        )
    return Observation(
        subject=server.name,
        message="; ".join((runs, *answer.known)),
        location=server.location,
        facts={"server": server.name, "engine": name, "version": version},
    )


SPEC = PredicateSpec(
    title="a server runs a release, with settings and a model, that have a known fault",
    scope="deployment",
    observe=_observe,
    parameters={
        "engines": Parameter(about="names of engines; by default all", kind="texts"),
        "other_than": Parameter(about="engines that it isn't about", kind="texts"),
        "only_if_known": Parameter(
            about="say nothing where a fact isn't known: for what harms nobody", kind="boolean"
        ),
        "since": Parameter(about="first release that is affected", kind="text"),
        "before": Parameter(about="first release that is not affected any more", kind="text"),
        "needs": Parameter(
            about="facts of the server and what they must be: true, false, a text, a list of "
            "texts, or a comparison such as '>=3.12'",
            kind="table",
        ),
    },
)
