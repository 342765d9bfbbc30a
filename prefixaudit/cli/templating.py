"""What the commands about chat templates share: options as values, and output formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import orjson

from prefixaudit.core.gate import GateReport
from prefixaudit.core.report import RenderOptions
from prefixaudit.errors import UsageError
from prefixaudit.json_text import json_text
from prefixaudit.printable import printable
from prefixaudit.render import gate_renderer

Render: TypeAlias = Callable[[GateReport, RenderOptions], str]
Choose: TypeAlias = Callable[[Render, Callable[[], Mapping[str, Any]]], Render]


def kwargs_from(text: str | None) -> Mapping[str, Any]:
    """Return the object of `--chat-template-kwargs`. Raises UsageError."""
    if text is None:
        return {}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise UsageError("--chat-template-kwargs: not valid JSON; expected an object") from None
    if not isinstance(value, dict):
        raise UsageError("--chat-template-kwargs: expected a JSON object")
    return value


def renderer_for(name: str) -> Choose:
    """Return what takes an own text and own values, and gives the renderer of a format.

    Text and JSON show the tables; the gate's other formats show the findings. Raises UsageError for
    an unknown format.
    """
    shared = gate_renderer(name)

    def choose(text: Render, values: Callable[[], Mapping[str, Any]]) -> Render:
        if name == "text":
            return text
        if name == "json":
            return lambda gate, how: json_text(values(), escape=printable)
        return shared

    return choose
