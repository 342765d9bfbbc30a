"""Renderers, one file an output format: a Report in, text out.

A member is `render/NAME.py` and ends in `RENDERER = Renderer(...)`; its name is what `--format`
takes. Renderers know `core` only, print nothing, and escape every text from outside.
"""

from __future__ import annotations

from typing import Final

from prefixaudit.core.report import Renderer
from prefixaudit.registry import Registry

RENDERERS: Final[Registry[Renderer]] = Registry(
    kind="output format", package="prefixaudit.render", attribute="RENDERER"
)
