"""Deployment files that people already have, one file a kind, recognised by content.

A member is `sources/NAME.py` and ends in `SOURCE = DeploymentSource(...)`. It reads text, never
runs anything, and returns a Sketch: servers and tiers in the keys of prefixaudit.toml, each with
its place, and what couldn't be understood. `sources/_assembly.py` puts the sketches of several
files together; `deployment.reading.read_deployments` makes a Deployment of them and
`sources/_toml.py` a prefixaudit.toml.

What a file says is known; an option that a complete command line lacks is known to be unset (None);
everything else stays unknown and is named. Keys, tokens and passwords are never kept.
"""

from __future__ import annotations

from typing import Final

from prefixaudit.deployment.sources._sketch import DeploymentSource
from prefixaudit.registry import Registry

SOURCES: Final[Registry[DeploymentSource]] = Registry(
    kind="deployment source", package="prefixaudit.deployment.sources", attribute="SOURCE"
)
