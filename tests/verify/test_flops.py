"""FLOP goldens: all equal as they are, and told apart when one figure is changed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.verify import VerificationReport, verify_folder
from tests.cost.golden import load_goldens, published_config


def verified(folder: Path, data: dict[str, Any]) -> VerificationReport:
    """Verify `data` in a folder, with the published configs it names beside that."""
    goldens = folder / "goldens"
    goldens.mkdir(exist_ok=True)
    (goldens / "flops.json").write_text(json.dumps(data))
    for record in data.get("real", {}).values():
        configs = folder / "model-configs" / record["config_name"]
        configs.mkdir(parents=True, exist_ok=True)
        (configs / "config.json").write_text(json.dumps(published_config(record["config_name"])))
    return verify_folder(goldens)


def test_all_goldens_are_equal(tmp_path: Path) -> None:
    report = verified(tmp_path, load_goldens())

    (row,) = report.kinds
    # 24 small configs of 7 cases, 19 published ones of 3, and six rotary types.
    assert (row.num_cases, row.num_mismatches) == (24 * 7 + 19 * 3 + 6, 0)
    assert row.num_configs == 24 + 19
    assert report.is_complete


def only(name: str, part: str = "small") -> dict[str, Any]:
    goldens = load_goldens()
    return copy.deepcopy({"meta": goldens["meta"], part: {name: goldens[part][name]}})


@pytest.mark.parametrize(
    ("field", "part"),
    [
        ("closed_causal", "attn_core"),
        ("closed_square", "dense_mlp"),
        ("measured", "lm_head"),
        ("measured_token_by_token_attention", "attn_core"),
    ],
)
def test_one_flop_more_is_found(tmp_path: Path, field: str, part: str) -> None:
    data = only("llama3-gqa")
    data["small"]["llama3-gqa"]["cases"][2][field][part] += 1

    report = verified(tmp_path, data)

    assert report.num_mismatches == 1
    mismatch = report.first_mismatches["flops"]
    assert mismatch.case.startswith("small llama3-gqa n=")
    assert part in mismatch.what


@pytest.mark.parametrize("field", ["closed_causal_total", "saved_by_cache_causal"])
def test_wrong_totals_are_found(tmp_path: Path, field: str) -> None:
    data = only("deepseek-v3", "real")
    data["real"]["deepseek-v3"]["cases"][0][field] += 1

    assert verified(tmp_path, data).num_mismatches == 1


def test_wrong_parameters_and_kv_are_found(tmp_path: Path) -> None:
    data = only("gemma2-alternating")
    data["small"]["gemma2-alternating"]["parameters_total"] += 1
    data["small"]["gemma2-alternating"]["kv"]["bytes_per_token_fp8"] += 1
    data["small"]["gemma2-alternating"]["kv"]["windowed_elements_by_window"] = {"11": 128}

    assert verified(tmp_path, data).num_mismatches == 3


def test_documented_differences_are_left_out_alone(tmp_path: Path) -> None:
    """Jamba's counter is blind to its scan; another component of the same case still counts."""
    data = only("jamba-mamba1-hybrid")
    case = data["small"]["jamba-mamba1-hybrid"]["cases"][0]
    case["measured"]["lin_core"] += 1000

    assert verified(tmp_path, data).num_mismatches == 0

    case["measured"]["experts"] += 1
    assert verified(tmp_path, data).num_mismatches == 1


def test_llama4_experts_are_compared_with_their_multiple(tmp_path: Path) -> None:
    data = only("llama4-chunked-interleaved")
    data["small"]["llama4-chunked-interleaved"]["cases"][0]["measured"]["experts"] += 4

    assert verified(tmp_path, data).num_mismatches == 1


def test_unknown_types_and_missing_configs_are_named_not_passed(tmp_path: Path) -> None:
    data = only("llama3-gqa")
    data["small"]["llama3-gqa"]["config"]["model_type"] = "lama"
    data["real"] = {"gone": {"config_name": "gone", "cases": []}}
    (tmp_path / "flops.json").write_text(json.dumps(data))

    report = verify_folder(tmp_path)

    assert not report.is_complete
    reasons = " ".join(item.reason for item in report.not_reproduced)
    assert "unknown model type 'lama'" in reasons
    assert "model-configs/gone/config.json" in reasons


@pytest.mark.parametrize(("name", "changed"), [("yarn", 0.5), ("dynamic", 0.0)])
def test_rotary_type_that_changes_otherwise_is_found(
    tmp_path: Path, name: str, changed: float
) -> None:
    data = {**only("llama3-gqa"), "rope_length_dependence": {}}
    record = copy.deepcopy(load_goldens()["rope_length_dependence"][name])
    changes = record["max_abs_diff_of_first_16_keys_vs_length_32"]
    record["max_abs_diff_of_first_16_keys_vs_length_32"] = {
        length: changed if int(length) > 64 else 0.0 for length in changes
    }
    data["rope_length_dependence"][name] = record

    assert verified(tmp_path, data).num_mismatches >= 1


def test_folder_names_do_not_lead_out(tmp_path: Path) -> None:
    data = {**only("llama3-gqa"), "real": {"x": {"config_name": "../x", "cases": []}}}
    (tmp_path / "flops.json").write_text(json.dumps(data))

    assert verify_folder(tmp_path).problems
