"""YAML with line numbers, read safely: plain values only, bounded in size and merges."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

import yaml

from prefixaudit.deployment.sources._sketch import SourceFile
from prefixaudit.errors import ConfigurationError

_MAX_MERGED_KEYS: Final = 10_000
_MAX_UNFOLDED: Final = 1_000_000


class LocatedDict(dict[str, Any]):
    """A mapping that knows the line (from 1) where it starts, and those of its keys."""

    line: int = 0
    key_lines: dict[str, int]


class _RefusedError(yaml.constructor.ConstructorError):
    """YAML that is well formed, and that nobody means; the problem is in our words."""


class _Loader(yaml.SafeLoader):
    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._flattened: set[int] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        if id(node) not in self._flattened:  # before merges, which own keys may override
            self._flattened.add(id(node))
            _refuse_repeated_keys(node)
        super().flatten_mapping(node)
        if len(node.value) > _MAX_MERGED_KEYS:
            raise _RefusedError(
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


def _refuse_repeated_keys(node: yaml.MappingNode) -> None:
    """Raise for a key that stands twice: kubectl and compose refuse it, PyYAML takes the last."""
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
            continue
        if (key.tag, key.value) in seen:
            raise _RefusedError(None, None, "a key stands twice in a mapping", key.start_mark)
        seen.add((key.tag, key.value))


def _unfolded(value: Any, sizes: dict[int, int]) -> int:
    """Return how many values a document has where every alias is written out.

    Raises ValueError from `_MAX_UNFOLDED` on, and where a value holds itself.
    """
    if not isinstance(value, dict | list):
        return 1
    known = sizes.get(id(value))
    if known is None:
        sizes[id(value)] = _MAX_UNFOLDED  # while its own parts are counted: a loop
        items = value.values() if isinstance(value, dict) else value
        known = sizes[id(value)] = 1 + sum(_unfolded(item, sizes) for item in items)
    if known >= _MAX_UNFOLDED:
        raise ValueError
    return known


def _construct_located(loader: _Loader, node: yaml.MappingNode) -> Any:
    return loader.construct_mapping(node)


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_located)


def _key(key: object) -> str:
    return ("true" if key else "false") if isinstance(key, bool) else str(key)


def read_yaml(file: SourceFile) -> list[Any]:
    """Return the documents of a YAML (or JSON) file. Raises ConfigurationError with the line."""
    try:
        documents = [item for item in yaml.load_all(file.text, Loader=_Loader) if item is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        hint = None
        if "{{" in file.text:
            hint = "this looks like a Helm template; render it first: helm template …"
        problem = error.problem if isinstance(error, _RefusedError) else "not valid YAML"
        raise ConfigurationError(
            f"{file.path}{line}: {problem}; expected plain YAML", hint=hint
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ConfigurationError(f"{file.path}: not valid YAML; expected plain YAML") from None
    sizes: dict[int, int] = {}
    try:
        for document in documents:
            _unfolded(document, sizes)
    except (ValueError, RecursionError):
        raise ConfigurationError(
            f"{file.path}: its aliases unfold to a million values or more; expected plain YAML"
        ) from None
    return documents


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
