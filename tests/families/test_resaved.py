"""A config saved again by transformers 5 means what its published form means.

The saved forms are written by the installed transformers' own configuration classes.
"""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.core.model import ModelSpec
from prefixaudit.cost.position import position_digest
from prefixaudit.families import describe
from tests.cost.golden import golden_records

NOT_WRITTEN = {
    # Its published file names the rope type only, which the class refuses.
    "phi-3.5-mini-instruct",
}
RECORDS = [item for item in golden_records() if item[0] not in NOT_WRITTEN]


def saved(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    from transformers import CONFIG_MAPPING

    values = copy.deepcopy(config)
    model_type = values.pop("model_type")
    values.pop("quantization_config", None)
    written = CONFIG_MAPPING[model_type](**values)
    written.save_pretrained(folder)
    result: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return result


def comparable(spec: ModelSpec) -> ModelSpec:
    # The quantization was left out above; draft layers are dropped or renamed by some classes.
    return replace(spec, quantization=None, num_draft_layers=0)


@pytest.mark.parametrize("config", [item[1] for item in RECORDS], ids=[item[0] for item in RECORDS])
def test_saved_again_means_the_same(config: dict[str, Any], tmp_path: Path) -> None:
    published = describe(config)
    again = describe(saved(config, tmp_path))

    assert comparable(again) == comparable(published)
    assert position_digest(again) == position_digest(published)
