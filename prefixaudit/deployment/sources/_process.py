"""A process that a file starts: its words, environment, image; and the server it is, if any."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Final

from prefixaudit.core.finding import Location
from prefixaudit.deployment.sources import _shell
from prefixaudit.deployment.sources._shell import Word

_TAG_VERSION: Final = re.compile(r"v?(\d+\.\d+(?:\.\d+)*(?:\.?(?:post|rc|dev)\d+)?)(?:[-+_.].*)?")
_REQUIREMENT: Final = re.compile(r"(vllm|sglang|lmcache)(?:\[[^\]]*\])?==([0-9][0-9A-Za-z.]*)")
_SHELLS: Final = frozenset(("sh", "bash", "ash", "dash", "zsh"))
_SERVER_OPTIONS: Final = frozenset(
    [
        "--model",
        "--model-path",
        "--served-model-name",
        "--max-model-len",
        "--context-length",
        "--tensor-parallel-size",
        "--tp-size",
        "--kv-transfer-config",
        "--enable-lora",
        "--enable-prefix-caching",
    ]
)
# Commands whose words name a server without starting it.
_NO_STARTERS: Final = frozenset(("echo", "printf", "grep", "pkill", "pgrep", "kill", "pip", "uv"))
# Commands that give a text to a shell, here or elsewhere.
_PASS_TO_SHELL: Final = frozenset(("ssh", "su", "runuser", "tmux", "screen", "flock"))

# Image name (without registry) to the engine whose version its tag is, and to what its own
# entry point runs.
IMAGES: Final[Mapping[str, tuple[str, str | None]]] = {
    "vllm/vllm-openai": ("vllm", "vllm serve"),
    "vllm/vllm-openai-rocm": ("vllm", "vllm serve"),
    "vllm-openai": ("vllm", "vllm serve"),
    "lmsysorg/sglang": ("sglang", None),
    "sglang": ("sglang", None),
    "lmcache/vllm-openai": ("lmcache", "vllm serve"),
    "lmcache/standalone": ("lmcache", "lmcache server"),
    "ai-dynamo/vllm-runtime": ("dynamo", None),
    "ai-dynamo/sglang-runtime": ("dynamo", None),
    "llm-d/llm-d-inference-scheduler": ("llm-d", "llm-d-router"),
    "llm-d/llm-d-router": ("llm-d", "llm-d-router"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process to be started.

    environment   values that are known; None: there, but not known (a secret, a reference)
    is_environment_complete  no other variable is set, as far as the file can say
    versions      versions of engines, from the image's tag or an installation in the script
    """

    name: str
    words: tuple[Word, ...]
    environment: Mapping[str, str | None] = field(default_factory=dict)
    is_environment_complete: bool = False
    image: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    location: Location
    replicas: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def variable(self, name: str) -> tuple[bool, str | None]:
        """Return whether it is known what a variable holds, and that (None: unset)."""
        if name in self.environment:
            value = self.environment[name]
            return value is not None, value
        return self.is_environment_complete, None


def known_image(image: str | None) -> tuple[str, str | None] | None:
    """Return the engine that an image's tag counts and what it runs, None for other images."""
    if image is None:
        return None
    name = _untagged(image)[0]
    for known in sorted(IMAGES, key=len, reverse=True):
        facts = IMAGES[known]
        if name == known or name.endswith(f"/{known}"):
            return facts
    return None


def entry_point(image: str | None, arguments: Sequence[Word]) -> str | None:
    """Return what an image runs of its own, None where that isn't known.

    An image of one's own that is named after an engine, and gets options of it, runs its server.
    """
    facts = known_image(image)
    if facts is not None:
        return facts[1]
    if image is not None and takes_server_options(arguments):
        name = _untagged(image)[0].rpartition("/")[2]
        if "vllm" in name:
            return "vllm serve"
    return None


def takes_server_options(words: Sequence[Word]) -> bool:
    """Say whether words hold options that only a server of a language model has."""
    names = {str(word).partition("=")[0].replace("_", "-") for word in words}
    return bool(names & _SERVER_OPTIONS)


def is_further_rank(words: Sequence[Word]) -> bool:
    """Say whether a server's words make it a rank of one that another process leads."""
    texts = [word.text or "" for word in words]
    rank = ""
    for place, text in enumerate(texts):
        option, separator, value = text.partition("=")
        if option == "--headless":
            return True
        if option in ("--node-rank", "--node_rank"):
            rank = value if separator else "".join(texts[place + 1 : place + 2])
    return rank.isdecimal() and int(rank) > 0


def image_versions(image: str | None) -> dict[str, str]:
    """Return the version that a known image's tag gives its engine."""
    facts = known_image(image)
    if image is None or facts is None:
        return {}
    match = _TAG_VERSION.fullmatch(_untagged(image)[1])
    return {facts[0]: match[1]} if match is not None else {}


def _untagged(image: str) -> tuple[str, str]:
    name, _, _ = image.partition("@")
    head, slash, last = name.rpartition("/")
    base, _, tag = last.partition(":")
    return head + slash + base, tag


def processes_of(process: Process) -> Iterator[Process]:
    """Yield the processes that one starts: itself, or those of the shell text that it runs."""
    words = process.words
    first = PurePosixPath(str(words[0])).name if words else ""
    runs = first == "uv" and any(word.text == "run" for word in words[1:3])
    if first in _NO_STARTERS and not runs:
        return
    for start in range(len(words)):
        if is_server(words[start:]):
            yield replace(process, words=words[start:])
            return
        if PurePosixPath(str(words[start])).name in _SHELLS:
            script = _script_of(words[start + 1 :])
            if script is not None:
                yield from _text_processes(script, process)
                return
            if start == 0:
                return  # a script in the image
    if first in _PASS_TO_SHELL:
        for word in words[1:]:
            if " " in (word.text or word.script):
                yield from _text_processes(word, process)


def _script_of(words: Sequence[Word]) -> Word | None:
    """Return the text that a shell is given with `-c`, None where it runs a file."""
    place = 0
    while place < len(words):
        text = words[place].text or ""
        if not text.startswith(("-", "+")):
            return None
        if not text.startswith("--"):
            if "c" in text:
                rest = words[place + 1 :]
                # `-ceo pipefail TEXT`: what -o names comes before the text.
                return next(iter(rest[1:] if text.endswith("o") else rest), None)
            place += text.endswith("o")
        place += 1
    return None


def _text_processes(word: Word, process: Process) -> Iterator[Process]:
    text = word.text if word.text is not None else word.script
    yield from script_processes(text, replace(process, words=()))


def script_processes(text: str, base: Process, *, is_whole_file: bool = False) -> Iterator[Process]:
    """Yield the processes that a shell text starts, `docker run` among them.

    They stand where `base` does, or at their lines where the text `is_whole_file`.
    """
    versions = dict(base.versions)
    for command in _shell.commands(text, base.environment):
        words = command.words
        installed = {
            match[1]: match[2] for word in words for match in [_match_requirement(word)] if match
        }
        versions |= installed
        process = replace(
            base,
            words=words,
            environment={**base.environment, **command.environment},
            versions=dict(versions),
            location=replace(base.location, line=command.line) if is_whole_file else base.location,
        )
        if PurePosixPath(str(words[0])).name in ("docker", "podman", "nerdctl"):
            container = _container_run(process)
            if container is not None:
                yield from processes_of(container)
            continue
        yield from processes_of(process)


def _match_requirement(word: Word) -> re.Match[str] | None:
    return _REQUIREMENT.fullmatch(word.text) if word.text is not None else None


# Options of `docker run` without a value; all others take one.
_DOCKER_FLAGS: Final = frozenset(
    [
        "-d",
        "-i",
        "-t",
        "-it",
        "-ti",
        "-itd",
        "-dit",
        "--rm",
        "--privileged",
        "--detach",
        "--init",
        "--interactive",
        "--tty",
        "--read-only",
        "--no-healthcheck",
        "-P",
        "--publish-all",
    ]
)


def _container_run(process: Process) -> Process | None:
    """Return the process of `docker run … IMAGE ARGUMENTS`, None where it is none we know."""
    words = process.words
    place = next((i + 1 for i, word in enumerate(words) if word.text == "run"), None)
    if place is None:
        return None
    environment: dict[str, str | None] = {}
    complete, name, entrypoint = True, process.name, None
    while place < len(words):
        text = words[place].text
        if text is None:
            if known_image(words[place].partial) is not None:
                break  # an image whose tag isn't known
            complete = False
            place += 1
            continue
        if not text.startswith("-"):
            break
        option, separator, value = text.partition("=")
        if not separator and option not in _DOCKER_FLAGS and place + 1 < len(words):
            place += 1
            value = words[place].text or ""
        if option in ("-e", "--env"):
            variable, given, content = value.partition("=")
            environment[variable] = content if given else process.environment.get(variable)
        elif option == "--env-file":
            complete = False
        elif option == "--name" and value:
            name = value
        elif option == "--entrypoint":
            entrypoint = value
        place += 1
    if place >= len(words):
        return None
    image = words[place].text or words[place].partial.rstrip(":")
    return container(
        replace(
            process,
            name=name,
            environment=environment,
            is_environment_complete=complete and known_image(image) is not None,
            image=image,
            versions={**process.versions, **image_versions(image)},
        ),
        entrypoint=None if entrypoint is None else (Word(entrypoint, process.location.line),),
        arguments=words[place + 1 :],
    )


def container(
    process: Process, *, entrypoint: Sequence[Word] | None, arguments: Sequence[Word]
) -> Process:
    """Return a container's process: its own entry point where none is given, then arguments."""
    line = process.location.line
    if entrypoint is None:
        own = (entry_point(process.image, arguments) or "").split()
        entrypoint = [Word(part, line) for part in own]
        if own == ["vllm", "serve"] and arguments and is_server(arguments):
            entrypoint = []
    return replace(process, words=(*entrypoint, *arguments))


_MODULES: Final[Mapping[str, str]] = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "sglang.launch_server": "sglang",
    "dynamo.vllm": "vllm",
    "dynamo.sglang": "sglang",
    "dynamo.frontend": "dynamo",
    "lmcache.v1.multiprocess.server": "lmcache",
}


def program(words: Sequence[Word]) -> tuple[str, Sequence[Word]] | None:
    """Return the program (vllm, sglang, dynamo, lmcache, llm-d) and its own words, None for others.

    `vllm serve` is "vllm", other subcommands of it are none.
    """
    if not words:
        return None
    # A folder that isn't known (`$VIRTUAL_ENV/bin/vllm`) leaves the program's name.
    path = words[0].text if words[0].text is not None else words[0].partial
    name = PurePosixPath(path).name
    second = words[1].text if len(words) > 1 else None
    if not name and second == "-m":
        name = "python"  # `$PYTHON -m …`
    if name in ("vllm", "sglang") and second == "serve":
        return name, words[2:]
    if name == "lmcache" and second in ("server", "serve"):
        return "lmcache", words[2:]
    if name == "llm-d-router":
        return "llm-d", words[1:]
    if re.fullmatch(r"python[0-9.]*", name):
        for place in range(1, len(words) - 1):
            if words[place].text == "-m":
                module = str(words[place + 1])
                rest = words[place + 2 :]
                if module in _MODULES:
                    return _MODULES[module], rest
                if module == "vllm.entrypoints.cli.main" and rest and rest[0].text == "serve":
                    return "vllm", rest[1:]
                return None
            if not (words[place].text or "").startswith("-"):
                return None
    return None


def is_server(words: Sequence[Word]) -> bool:
    """Say whether a command line starts with a program that we know."""
    return program(words) is not None
