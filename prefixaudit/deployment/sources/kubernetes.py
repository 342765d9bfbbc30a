"""Kubernetes manifests: Pod, Deployment, StatefulSet, DaemonSet, Job, LeaderWorkerSet …

Any object with a pod template is read, at whatever depth it lies. Values from secrets and config
maps outside of the file stay unknown; those of ConfigMaps in it are read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from prefixaudit.core.finding import Location
from prefixaudit.deployment.sources._process import (
    Process,
    container,
    image_versions,
    known_image,
)
from prefixaudit.deployment.sources._programs import sketch_of_containers
from prefixaudit.deployment.sources._shell import Word, unknown_part
from prefixaudit.deployment.sources._sketch import (
    Attachments,
    DeploymentSource,
    Sketch,
    SourceFile,
)
from prefixaudit.deployment.sources._yaml import (
    block_line,
    line_of,
    list_of,
    mapping_of,
    read_yaml,
    yaml_or_none,
)

_REFERENCE: Final = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_MAX_DEPTH: Final = 12
# Keys between a pod's name and its spec.
_WRAPPERS: Final = frozenset(("spec", "template", "extraPodSpec", "podSpec"))


def recognises(file: SourceFile) -> bool:
    """Say whether a YAML document has `apiVersion` and `kind`."""
    if "apiVersion" not in file.text:
        return False
    documents = yaml_or_none(file)
    if documents is None:
        return bool(re.search(r"^apiVersion:", file.text, re.MULTILINE))
    return any(_is_object(document) for document in documents)


def read(file: SourceFile, attachments: Attachments) -> Sketch:
    """Return the servers of all pods in the file."""
    objects = list(_objects(read_yaml(file)))
    maps = {
        _name(item): mapping_of(item.get("data")) for item in objects if item["kind"] == "ConfigMap"
    }
    containers = (found for item in objects for found in _containers(item, file, maps))
    return sketch_of_containers(containers, attachments)


def attached(file: SourceFile) -> Mapping[str, SourceFile]:
    """Return the files in ConfigMaps by name."""
    documents = yaml_or_none(file) or []
    return {
        key: SourceFile(path=file.path, text=value, first_line=block_line(item["data"], key))
        for item in _objects(documents)
        if item["kind"] == "ConfigMap" and isinstance(item.get("data"), Mapping)
        for key, value in item["data"].items()
        if isinstance(value, str)
    }


def _is_object(document: object) -> bool:
    return isinstance(document, Mapping) and "apiVersion" in document and "kind" in document


def _objects(documents: list[Any]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        if not _is_object(document):
            continue
        if document["kind"] == "List" and isinstance(document.get("items"), list):
            yield from _objects(document["items"])
        else:
            yield document


def _name(item: Mapping[str, Any]) -> str:
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else str(item["kind"]).lower()


def _containers(
    item: Mapping[str, Any], file: SourceFile, maps: Mapping[str, Mapping[str, Any]]
) -> Iterator[Process]:
    """Yield the main containers of every pod spec in an object."""
    specs = list(_pod_specs(item.get("spec"), 0))
    counts = Counter(key for key, _ in specs)
    replicas = item["spec"].get("replicas") if isinstance(item.get("spec"), Mapping) else None
    for number, (key, containers) in enumerate(specs, start=1):
        name = _name(item)
        if len(specs) > 1:
            name += f"-{key}" if counts[key] == 1 else f"-{number}"
        for entry in (c for c in containers if isinstance(c, Mapping)):
            image = entry.get("image") if isinstance(entry.get("image"), str) else None
            environment, complete = _environment(entry, maps)
            line = line_of(entry)
            base = Process(
                name=name,
                words=(),
                environment=environment,
                is_environment_complete=complete and known_image(image) is not None,
                image=image,
                versions=image_versions(image),
                location=Location(path=file.path, line=line),
                replicas=replicas if isinstance(replicas, int) else None,
            )
            command = _words(entry.get("command"), environment, line)
            arguments = _words(entry.get("args"), environment, line)
            yield container(base, entrypoint=command, arguments=arguments or ())


def _pod_specs(value: object, depth: int, key: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Yield the containers of each pod spec, with the key that it lies under.

    Workers beside a leader are ranks of the leader's server (LeaderWorkerSet); a `mainContainer` is
    a pod's own (DynamoGraphDeployment).
    """
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, Mapping):
        if isinstance(value.get("containers"), list):
            yield key, value["containers"]
            return
        if isinstance(value.get("mainContainer"), Mapping):
            yield key, [value["mainContainer"]]
            return
        has_leader = isinstance(value.get("leaderTemplate"), Mapping)
        for name, inner in value.items():
            if not (has_leader and name == "workerTemplate"):
                passes = name in _WRAPPERS and key
                yield from _pod_specs(inner, depth + 1, key if passes else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _pod_specs(inner, depth + 1, key)


def _environment(
    entry: Mapping[str, Any], maps: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, str | None], bool]:
    """Return a container's variables, and whether there are no others."""
    environment: dict[str, str | None] = {}
    complete = True
    for source in list_of(entry.get("envFrom")):
        reference = mapping_of(mapping_of(source).get("configMapRef"))
        data = maps.get(str(reference.get("name")))
        if data is None:
            complete = False
        else:
            environment |= {key: str(value) for key, value in data.items()}
    for item in list_of(entry.get("env")):
        if not isinstance(item, Mapping) or not isinstance(item.get("name"), str):
            continue
        value = item.get("value")
        if "valueFrom" in item:
            environment[item["name"]] = _from_map(item["valueFrom"], maps)
        elif value is None:
            environment[item["name"]] = ""
        else:
            text = ("true" if value else "false") if isinstance(value, bool) else str(value)
            environment[item["name"]] = _expanded(text, environment)
    return environment, complete


def _from_map(source: object, maps: Mapping[str, Mapping[str, Any]]) -> str | None:
    reference = mapping_of(mapping_of(source).get("configMapKeyRef"))
    value = maps.get(str(reference.get("name")), {}).get(str(reference.get("key")))
    return None if value is None else str(value)


def _expanded(text: str, environment: Mapping[str, str | None]) -> str | None:
    """Replace `$(NAME)`; None where a variable's value isn't known."""
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        if match[1] not in environment:
            return match[0]  # Kubernetes leaves it as it is
        found = environment[match[1]]
        missing = missing or found is None
        return found or ""

    result = _REFERENCE.sub(value, text)
    return None if missing else result


def _words(
    value: object, environment: Mapping[str, str | None], line: int
) -> tuple[Word, ...] | None:
    if value is None:
        return None
    items = value if isinstance(value, list) else [value]
    words = []
    for item in items:
        text = str(item)
        known = _expanded(text, environment)
        names = " ".join(match[0] for match in _REFERENCE.finditer(text))
        option, separator, _ = text.partition("=")
        raw = f"{option}={names}" if separator and text.startswith("-") else names
        if known is not None:
            words.append(Word(known, line))
        else:
            words.append(Word(None, line, raw, _marked(text, environment)))
    return tuple(words)


def _marked(text: str, environment: Mapping[str, str | None]) -> str:
    """Replace `$(NAME)`, by a mark where the value isn't known."""

    def value(match: re.Match[str]) -> str:
        found = environment.get(match[1], match[0])
        return unknown_part(match[0]) if found is None else found

    return _REFERENCE.sub(value, text)


SOURCE = DeploymentSource(
    title="Kubernetes manifests",
    recognises=recognises,
    read=read,
    attached=attached,
    order=10,
)
