"""Docker compose files: services, their commands and environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from prefixaudit.core.finding import Location
from prefixaudit.deployment.sources import _shell
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

# ${NAME:-default}; $$ is a plain dollar sign.
_VARIABLE: Final = re.compile(r"\$(?:(\$)|([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-?+])([^{}]*))?\})")


def recognises(file: SourceFile) -> bool:
    """Say whether the file has `services` whose entries have an image, build or command."""
    if "services" not in file.text:
        return False
    documents = yaml_or_none(file)
    if not documents:
        return bool(re.search(r"^services:", file.text, re.MULTILINE))
    services = documents[0].get("services") if isinstance(documents[0], Mapping) else None
    keys = ("image", "build", "command")
    return isinstance(services, Mapping) and any(
        isinstance(service, Mapping) and any(key in service for key in keys)
        for service in services.values()
    )


def read(file: SourceFile, attachments: Attachments) -> Sketch:
    """Return the servers among the services, by service name."""
    documents = read_yaml(file)
    services = mapping_of(documents[0]).get("services") if documents else None
    containers = (
        _process(name, service, file)
        for name, service in (services.items() if isinstance(services, Mapping) else ())
        if isinstance(service, Mapping)
    )
    return sketch_of_containers(containers, attachments)


def attached(file: SourceFile) -> Mapping[str, SourceFile]:
    """Return the files that `configs` hold as text, by the name they are mounted under."""
    documents = yaml_or_none(file) or []
    configs = documents[0].get("configs") if documents and isinstance(documents[0], dict) else None
    found = {}
    for name, config in (configs or {}).items() if isinstance(configs, Mapping) else ():
        content = config.get("content") if isinstance(config, Mapping) else None
        if isinstance(content, str):
            line = block_line(config, "content")
            inner = SourceFile(path=file.path, text=content, first_line=line)
            found[name] = inner
            for target in _targets(documents[0], name):
                found[PurePosixPath(target).name] = inner
    return found


def _targets(document: Mapping[str, Any], config: str) -> Iterator[str]:
    services = document.get("services")
    for service in services.values() if isinstance(services, Mapping) else ():
        for use in list_of(mapping_of(service).get("configs")):
            if isinstance(use, Mapping) and use.get("source") == config:
                target = use.get("target")
                if isinstance(target, str):
                    yield target


def _process(name: str, service: Mapping[str, Any], file: SourceFile) -> Process:
    image = service.get("image")
    if isinstance(image, str):
        # A tag that isn't known leaves the image's name.
        image = _expanded(image) or _VARIABLE.sub("", image).rstrip(":")
    else:
        image = None
    environment, complete = _environment(service)
    line = line_of(service)
    deploy = service.get("deploy")
    replicas = deploy.get("replicas") if isinstance(deploy, Mapping) else service.get("scale")
    base = Process(
        name=name,
        words=(),
        environment=environment,
        is_environment_complete=complete and known_image(image) is not None,
        image=image,
        versions=image_versions(image),
        location=Location(path=file.path, line=max(1, line - 1)),
        replicas=replicas if isinstance(replicas, int) and replicas != 1 else None,
    )
    entrypoint = _words(service.get("entrypoint"), line)
    return container(
        base, entrypoint=entrypoint, arguments=_words(service.get("command"), line) or ()
    )


def _environment(service: Mapping[str, Any]) -> tuple[dict[str, str | None], bool]:
    given = service.get("environment")
    environment: dict[str, str | None] = {}
    if isinstance(given, Mapping):
        for key, value in given.items():
            # Without a value it is taken from whoever runs compose.
            environment[key] = None if value is None else _expanded(_text(value))
    elif isinstance(given, list):
        for item in given:
            key, separator, value = str(item).partition("=")
            environment[key] = _expanded(value) if separator else None
    return environment, "env_file" not in service


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _expanded(text: str) -> str | None:
    """Replace variables by their defaults; None where one has none."""
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        if match[1]:
            return "$"
        if match[4] in (":-", "-"):
            return str(match[5])
        missing = True
        return ""

    result = _VARIABLE.sub(value, text)
    return None if missing else result


def _words(value: object, line: int) -> tuple[Word, ...] | None:
    """Return a command given as a list or as one text, which is split as a shell would."""
    if value is None:
        return None
    if isinstance(value, list):
        words = []
        for item in value:
            text = _text(item)
            known = _expanded(text)
            if known is not None:
                words.append(Word(known, line))
            else:
                words.append(Word(None, line, _names(text), _marked(text)))
        return tuple(words)
    if isinstance(value, Mapping):
        return (Word(None, line, "what isn't a command"),)
    text = _text(value)
    # Line breaks of a folded or literal block are blanks, as compose splits it.
    parts = _shell.commands(re.sub(r"\\?\n", " ", text).replace("$$", "\\$"))
    first = next(parts, None)
    return () if first is None else tuple(Word(w.text, line, w.raw, w.script) for w in first.words)


def _marked(text: str) -> str:
    """Replace variables by their defaults, by a mark where one has none."""

    def value(match: re.Match[str]) -> str:
        known = _expanded(match[0])
        return unknown_part(_names(match[0])) if known is None else known

    return _VARIABLE.sub(value, text)


def _names(text: str) -> str:
    option, separator, _ = text.partition("=")
    names = " ".join(match[0] for match in _VARIABLE.finditer(text))
    names = re.sub(r":?[-?+][^{}]*", "", names)
    return f"{option}={names}" if separator and text.startswith("-") else names


SOURCE = DeploymentSource(
    title="Docker compose files",
    recognises=recognises,
    read=read,
    attached=attached,
    order=11,
)
