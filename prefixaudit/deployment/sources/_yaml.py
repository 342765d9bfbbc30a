"""YAML with line numbers, read safely: plain values only, bounded in size and merges."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

import yaml

from prefixaudit.deployment.sources._sketch import SourceFile
from prefixaudit.errors import ConfigurationError

_MAX_MERGED_KEYS: Final = 10_000


class LocatedDict(dict[str, Any]):
    """A mapping that knows the line (from 1) where it starts, and those of its keys."""

    line: int = 0
    key_lines: dict[str, int]


class _Loader(yaml.SafeLoader):
    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MAX_MERGED_KEYS:
            raise yaml.constructor.ConstructorError(
                None, None, "merge keys unfold to too many entries", node.start_mark
            )

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        # Not only texts can be keys (`on:` is true); here all of them are read as texts.
        values = super().construct_mapping(node, deep=True)
        located = LocatedDict({_key(key): value for key, value in values.items()})
        located.line = node.start_mark.line + 1
        located.key_lines = {
            key.value: key.start_mark.line + 1
            for key, _ in node.value
            if isinstance(key, yaml.ScalarNode)
        }
        return located  # type: ignore[return-value]


def _construct_located(loader: _Loader, node: yaml.MappingNode) -> Any:
    return loader.construct_mapping(node)


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_located)


def _key(key: object) -> str:
    return ("true" if key else "false") if isinstance(key, bool) else str(key)


def read_yaml(file: SourceFile) -> list[Any]:
    """Return the documents of a YAML (or JSON) file. Raises ConfigurationError with the line."""
    try:
        return [item for item in yaml.load_all(file.text, Loader=_Loader) if item is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        hint = None
        if "{{" in file.text:
            hint = "this looks like a Helm template; render it first: helm template …"
        raise ConfigurationError(
            f"{file.path}{line}: not valid YAML; expected plain YAML", hint=hint
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ConfigurationError(f"{file.path}: not valid YAML; expected plain YAML") from None


def yaml_or_none(file: SourceFile) -> list[Any] | None:
    """Return the documents, None where the file is no YAML."""
    try:
        return read_yaml(file)
    except ConfigurationError:
        return None


def line_of(value: object) -> int:
    """Return the line where a mapping starts, 0 where it isn't known."""
    return value.line if isinstance(value, LocatedDict) else 0


def block_line(mapping: object, key: str) -> int:
    """Return the line after a key, where its block of text starts; 1 where it isn't known."""
    lines = mapping.key_lines if isinstance(mapping, LocatedDict) else {}
    return lines.get(key, 0) + 1


def mapping_of(value: object) -> Mapping[str, Any]:
    """Return a mapping, an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def list_of(value: object) -> list[Any]:
    """Return a list, an empty one for anything else."""
    return value if isinstance(value, list) else []
