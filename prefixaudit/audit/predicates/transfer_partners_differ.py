"""Servers that hand KV to each other differ in something that their handshake doesn't compare.

Prefill and decode servers with one of the connectors are taken for partners where they can serve
one model. Found: two of them are known to differ in one of the facts. Inconclusive: that isn't
known.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from prefixaudit.audit.needs import answer_needs, written
from prefixaudit.audit.server_facts import Fact, fact_of
from prefixaudit.core.audit import AuditSubject, ServerFacts
from prefixaudit.core.finding import Observation
from prefixaudit.core.rule import Parameter, PredicateSpec
from prefixaudit.core.unknown import UNKNOWN


def _observe(subject: AuditSubject, params: Mapping[str, Any]) -> Iterator[Observation]:
    needs = {"connectors": list(params["connectors"])}
    partners = [
        server for server in subject.servers if answer_needs(needs, server, subject).holds is True
    ]
    for name in params["facts"]:
        yield from _of_fact(name, partners, subject)


def _of_fact(
    name: str, partners: list[ServerFacts], subject: AuditSubject
) -> Iterator[Observation]:
    values: dict[str, Fact] = {}
    in_doubt: dict[str, None] = {}
    for left, right in itertools.combinations(partners, 2):
        models = [fact_of("model", server, subject) for server in (left, right)]
        if UNKNOWN not in models and models[0] != models[1]:
            continue
        pair = {server.name: fact_of(name, server, subject) for server in (left, right)}
        if UNKNOWN in (*models, *pair.values()):
            in_doubt |= dict.fromkeys(pair)
        elif pair[left.name] != pair[right.name]:
            values |= pair
    if values:
        listed = ", ".join(f"{server} {written(value)}" for server, value in values.items())
        location = next(server.location for server in partners if server.name in values)
        yield Observation(
            subject=f"{', '.join(values)}: {name}",
            message=f"servers that hand KV to each other differ in {name}: {listed}",
            location=location,
            facts={"servers": list(values), "fields": [name]},
        )
    elif in_doubt:
        yield Observation(
            subject=f"{', '.join(in_doubt)}: {name}",
            message=f"{name} or the model isn't known of all servers that hand KV to each other: "
            + ", ".join(in_doubt),
            verdict="inconclusive",
            location=partners[0].location,
            facts={"servers": list(in_doubt), "unknown_fields": [name]},
        )


SPEC = PredicateSpec(
    title="servers that hand KV to each other differ in what their handshake doesn't compare",
    scope="deployment",
    observe=_observe,
    parameters={
        "facts": Parameter(
            about="facts of servers, of which one differs", kind="texts", is_required=True
        ),
        "connectors": Parameter(
            about="names of KV connectors, `*` for any text", kind="texts", is_required=True
        ),
    },
)
