"""The measured figures of tests/data/goldens/flops.json, for the tests of cost and families."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data"


@cache
def load_goldens() -> dict[str, Any]:
    goldens: dict[str, Any] = json.loads((DATA / "goldens" / "flops.json").read_text())
    return goldens


def published_config(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((DATA / "model-configs" / name / "config.json").read_text())
    return config


def golden_records() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return (name, config, record) of all configurations, small and published."""
    goldens = load_goldens()
    small = [(name, record["config"], record) for name, record in goldens["small"].items()]
    real = [
        (name, published_config(record["config_name"]), record)
        for name, record in goldens["real"].items()
    ]
    return small + real


def golden(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (config, record) of one configuration."""
    return next((config, record) for found, config, record in golden_records() if found == name)
