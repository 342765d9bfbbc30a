"""Scenarios recorded from SGLang's own RadixCache and allocators, operation by operation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prefixaudit.verify import VerificationReport, verify_folder

HERE = Path(__file__).parent
SHORT = HERE.parents[1] / "data" / "sglang_replay"
ALL = HERE.parents[3] / "shared" / "goldens" / "sglang_replay"


def table(report: VerificationReport) -> str:
    rows = [f"{'SGLang':<8}{'files':>6}{'operations':>12}{'mismatches':>12}"]
    rows += [
        f"{kind.engine_version:<8}{kind.num_files:>6}{kind.num_operations:>12}{kind.num_mismatches:>12}"
        for kind in report.kinds
    ]
    return "\n".join(rows)


@pytest.mark.parametrize("folder", [SHORT, ALL], ids=["short", "all"])
def test_every_operation_gives_what_the_engine_gave(folder: Path) -> None:
    if not folder.exists():
        pytest.skip("the whole set of vectors is not here")

    report = verify_folder(folder, kinds=["sglang-replay"])

    print(table(report))
    assert report.num_files == len(list(folder.rglob("*.json")))
    assert report.is_complete
    assert report.num_mismatches == 0, report.first_mismatches


def test_wrong_expectation_is_found(tmp_path: Path) -> None:
    name = "sglang-0.5.9/sgl-lru-14.json"
    data = json.loads((SHORT / name).read_bytes())
    data["expect"][5]["hit"] += 16
    (tmp_path / "sgl.json").write_text(json.dumps(data))

    report = verify_folder(tmp_path)

    assert report.num_mismatches == 1
    assert report.first_mismatches["sglang-replay"].what == "operation 5"


def test_unknown_policy_is_named_and_not_passed_over(tmp_path: Path) -> None:
    data = json.loads((SHORT / "sglang-0.5.9/sgl-lru-14.json").read_bytes())
    data["settings"]["policy"] = "clock"
    (tmp_path / "sgl.json").write_text(json.dumps(data))

    report = verify_folder(tmp_path)

    assert not report.is_complete
    assert "clock" in report.not_reproduced[0].reason
