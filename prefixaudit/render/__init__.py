"""Renderers, one file an output format: a Report in, text out.

A member is `render/NAME.py` and ends in `RENDERER = Renderer(...)`; its name is what `--format`
takes. Renderers know `core` only, print nothing, and escape every text from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from prefixaudit.core.report import Renderer, RenderOptions
from prefixaudit.errors import UsageError, unknown_name
from prefixaudit.registry import Registry

if TYPE_CHECKING:
    from prefixaudit.core.gate import GateReport

RENDERERS: Final[Registry[Renderer]] = Registry(
    kind="output format", package="prefixaudit.render", attribute="RENDERER"
)


def gate_renderer(name: str) -> Callable[[GateReport, RenderOptions], str]:
    """Return what renders a gate as `name`. Raises UsageError, with the known names."""
    found = RENDERERS[name].render_gate
    if found is None:
        able = [other for other in RENDERERS.names if RENDERERS[other].render_gate is not None]
        raise UsageError(unknown_name("output format of a gate", name, able))
    return found
