"""Reads [model] and [identity] tables: of the deployment, and of one of its servers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from prefixaudit.core.identity import IDENTITY_FIELDS, Identity
from prefixaudit.core.unknown import UNKNOWN, Known
from prefixaudit.deployment.model_folder import model_folder_problem
from prefixaudit.tables import Table

# [model] key -> identity field
_MODEL_IDENTITY: Final = {
    "name": "model",
    "revision": "model_revision",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "kv_scales": "kv_scales",
}
_NO_DTYPE: Final = ("dtype", "kv_cache_dtype")


def read_model(table: Table, folder: Path) -> tuple[dict[str, Any], Identity]:
    """Return a [model] table: model_dir, chat_template, max_model_len; and the identity it gives.

    Paths are relative to `folder`; problems are noted in the table's document.
    """
    model_dir = _path(table, "path", folder)
    if model_dir is not None and (problem := model_folder_problem(model_dir)):
        table.problem("path", problem)
    template = _path(table, "chat_template", folder)
    if template is not None and not template.is_file():
        table.problem("chat_template", f"{template}: no such file")
    values: dict[str, Any] = {
        field: text_or_false(table, key) for key, field in _MODEL_IDENTITY.items()
    }
    for key in _NO_DTYPE:
        if values[key] == "auto":
            # What the engine picks for "auto" depends on its version and the checkpoint.
            table.problem(key, "is 'auto'; name the type that is served, or leave the key out")
    fields = {
        "model_dir": model_dir,
        "chat_template": template,
        "max_model_len": table.integer("max_model_len", default=None, minimum=1),
    }
    return fields, Identity(**values)


def read_model_config_table(table: Table) -> Mapping[str, Any]:
    """Return [model.config]: keys of config.json as served, laid over those of the folder."""
    if "config" not in table:
        return {}
    config = table.table("config")
    config.allow_any_keys()
    return config.data


def read_identity(table: Table, from_model: Identity) -> Identity:
    """Return an [identity] table; a field that [model] also gives is a problem."""
    values = {name: text_or_false(table, name) for name in IDENTITY_FIELDS}
    for key, name in _MODEL_IDENTITY.items():
        if name in table and getattr(from_model, name) is not UNKNOWN:
            table.problem(name, f"is also given as [model] {key}; give one")
    return Identity(**values)


def text_or_false(table: Table, key: str) -> Known[str]:
    """Return text, None for `false` (known to be absent), UNKNOWN where the key is missing."""
    value = table.any_value(key, default=UNKNOWN)
    if value is UNKNOWN or isinstance(value, str):
        if value == "":
            table.problem(key, "is empty; expected text, or false for: known to be absent")
        return value
    if value is not False:
        table.problem(key, "expected text, or false for: known to be absent")
    return None


def _path(table: Table, key: str, folder: Path) -> Path | None:
    text = table.text(key, default=None)
    return None if text is None else folder / text
