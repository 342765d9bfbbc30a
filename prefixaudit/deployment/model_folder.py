"""What a model folder's config.json says: read as JSON, never run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefixaudit.core.identity import Identity
from prefixaudit.errors import ConfigurationError

if TYPE_CHECKING:
    from prefixaudit.core.model import ModelSpec

# config.json is a few kilobytes; what is larger is something else.
_MAX_CONFIG_BYTES = 16 * 2**20


def model_folder_problem(folder: Path) -> str | None:
    """Say why a path is no model folder, None where it is one."""
    if not folder.exists():
        return f"{folder}: no such model folder"
    if not folder.is_dir():
        return f"{folder}: is a file; expected a model folder with config.json and tokenizer.json"
    return None


def read_model_config(folder: Path) -> Mapping[str, Any] | None:
    """Return config.json of a model folder, None where the folder has none.

    Raises ConfigurationError where it can't be read or isn't a JSON object.
    """
    path = folder / "config.json"
    return read_config_file(path) if path.exists() else None


def read_config_file(path: Path) -> Mapping[str, Any]:
    """Return a decoded config.json; `Infinity` stands in some of them and is taken.

    Raises ConfigurationError where it can't be read or isn't a JSON object.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(_MAX_CONFIG_BYTES + 1)
        if len(content) > _MAX_CONFIG_BYTES:
            raise ConfigurationError(f"{path}: larger than 16 MiB; expected a model's config")
        config = json.loads(content)
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise ConfigurationError(f"{path}:{line}: is not valid JSON") from None
    if not isinstance(config, dict):
        raise ConfigurationError(f"{path}: holds no JSON object")
    return config


def model_identity(model: ModelSpec) -> Identity:
    """Return the identity fields that a config.json decides: position encoding and attention.

    The digest of the position encoding is the SHA-256 of its normalised description, so that two
    spellings of one encoding are equal. What the engine is told beside the file isn't in it.
    """
    from prefixaudit.cost.position import position_digest

    digest = position_digest(model)
    return Identity(position_encoding=f"sha256:{digest}", attention=_attention(model))


def _attention(model: ModelSpec) -> str:
    from prefixaudit.core.model import Attention

    patterns = set()
    for layer, _ in model.distinct_layers:
        for mixer in layer.mixers:
            if not isinstance(mixer, Attention):
                continue
            if mixer.window is not None:
                patterns.add(f"window {mixer.window}")
            elif mixer.chunk is not None:
                patterns.add(f"chunk {mixer.chunk}")
            else:
                patterns.add("full")
    return " + ".join(sorted(patterns)) or "full"
