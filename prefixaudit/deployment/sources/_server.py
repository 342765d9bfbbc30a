"""What the servers of all engines have in common, while one is being put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.deployment.sources._process import Process, known_image
from prefixaudit.deployment.sources._sketch import Piece

_TRUE: Final = frozenset(("1", "true", "yes", "on"))


class ServerDraft:
    """Gathers a [[server]] table: what is known, known to be unset (None), and what is not."""

    def __init__(self, process: Process, engine: str) -> None:
        self.process = process
        self.engine = engine
        self.model: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}
        self.unknown: list[str] = []
        self.block_size: int | None = None
        self.tiers: list[Piece] = []

    def take(self, values: Mapping[str, Any], names: Mapping[str, str], *, complete: bool) -> None:
        """Take options as settings: `names` maps an option's long name to the setting's.

        An option that a complete command line lacks is unset; one that couldn't be read is unknown.
        """
        for option, setting in names.items():
            if option in values:
                if values[option] is not None:
                    self.settings[setting] = values[option]
            elif complete:
                self.settings.setdefault(setting, None)

    def take_flags(
        self, values: Mapping[str, Any], names: Mapping[str, str], *, complete: bool
    ) -> None:
        """Take options that are on or off; off where a complete command line lacks them."""
        for option, setting in names.items():
            if option in values:
                if values[option] is not None:
                    self.settings[setting] = values[option]
            elif complete:
                self.settings.setdefault(setting, False)

    def take_variable(self, variable: str, setting: str, *, is_flag: bool = False) -> None:
        """Take an environment variable as a setting."""
        is_known, value = self.process.variable(variable)
        if not is_known:
            if variable in self.process.environment:
                self.unknown.append(f"{variable} is set, but its value isn't in the file")
            return
        if is_flag:
            self.settings[setting] = value is not None and value.strip().lower() in _TRUE
        else:
            self.settings[setting] = value

    def take_seed(self) -> None:
        """Take PYTHONHASHSEED; `random` is Python's word for unset."""
        self.take_variable("PYTHONHASHSEED", "python_hash_seed")
        if self.settings.get("python_hash_seed") in ("random", ""):
            self.settings["python_hash_seed"] = None
        is_missing = "PYTHONHASHSEED" not in self.process.environment
        if self.engine == "vllm" and is_missing and "python_hash_seed" not in self.settings:
            self.unknown.append("PYTHONHASHSEED: the environment isn't in the file")

    def set_model(self, key: str, value: Any) -> None:
        """Take a [model] key where the value is known."""
        if value is not None and value is not UNKNOWN:
            self.model[key] = value

    def version(self) -> str | None:
        """Return the engine's version, and note where it isn't known."""
        version = self.process.versions.get(self.engine)
        if version is None:
            image = self.process.image
            where = "no image or installation names it" if image is None else f"image {image}"
            self.unknown.append(f"version of {self.engine} ({where})")
        return version

    def piece(self) -> Piece:
        """Return the table."""
        process = self.process
        if process.image is not None:
            self.settings["image"] = process.image
            if known_image(process.image) is None:
                self.unknown.append(f"image {process.image} may set variables of its own")
        if process.replicas is not None:
            self.settings["replicas"] = process.replicas
        data: dict[str, Any] = {"name": process.name, "engine": self.engine}
        version = self.version()
        if version is not None:
            data["version"] = version
        if self.block_size is not None:
            data["block_size"] = self.block_size
        if self.model:
            data["model"] = dict(sorted(self.model.items()))
        data["settings"] = dict(sorted(self.settings.items()))
        return Piece(data=data, location=process.location, unknown=tuple(self.unknown))


def template_setting(value: object) -> str | None:
    """Return a chat template's path; a template given as text is private and only named."""
    if not isinstance(value, str):
        return None
    return "given as text" if "\n" in value or "{" in value else value
