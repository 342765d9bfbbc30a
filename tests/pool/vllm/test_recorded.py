"""Runs recorded from vLLM's own KVCacheManager and Scheduler, operation by operation.

The files under tests/data are the beginnings of longer ones; the whole set is read where it exists.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prefixaudit.verify import VerificationReport, verify_folder

HERE = Path(__file__).parent
SHORT = HERE.parents[1] / "data"
ALL = HERE.parents[3] / "shared" / "goldens"
FOLDERS = pytest.mark.parametrize("folder", [SHORT, ALL], ids=["short", "all"])


def table(report: VerificationReport) -> str:
    rows = [f"{'vLLM':<8}{'files':>6}{'operations':>12}{'mismatches':>12}"]
    rows += [
        f"{kind.engine_version:<8}{kind.num_files:>6}{kind.num_operations:>12}"
        f"{kind.num_mismatches:>12}"
        for kind in report.kinds
    ]
    return "\n".join(rows)


def verify_all(folder: Path, kind: str) -> VerificationReport:
    if not folder.exists():
        pytest.skip("the whole set of vectors is not here")
    report = verify_folder(folder / kind, kinds=[kind.replace("_", "-")])
    print(table(report))
    assert report.num_files == len(list((folder / kind).rglob("*.json")))
    assert report.is_complete
    return report


@FOLDERS
def test_every_operation_gives_what_the_engine_gave(folder: Path) -> None:
    report = verify_all(folder, "vllm_replay")

    assert report.num_mismatches == 0, report.first_mismatches


@FOLDERS
def test_every_request_is_scheduled_when_the_engine_scheduled_it(folder: Path) -> None:
    report = verify_all(folder, "vllm_sched")

    assert report.num_mismatches == 0, report.first_mismatches


def test_short_set_has_every_kind_with_evictions_and_failures() -> None:
    names = {path.name.rpartition("-")[0] for path in (SHORT / "vllm_replay").rglob("*.json")}
    results = [
        result
        for path in (SHORT / "vllm_replay").rglob("*.json")
        for result in json.loads(path.read_bytes())["expect"]
        if result
    ]

    assert names >= {"full", "eagle", "swa", "hybrid", "hybridbs", "chunkedlocal", "retention"}
    assert sum(len(result.get("rm", ())) for result in results) > 1_000
    assert sum(result.get("ok") == 0 for result in results) > 15


def test_wrong_expectation_is_found(tmp_path: Path) -> None:
    data = json.loads((SHORT / "vllm_replay/vllm-0.33.0/full-09.json").read_bytes())
    data["expect"][7]["free"] += 1
    (tmp_path / "run.json").write_text(json.dumps(data))

    report = verify_folder(tmp_path)

    assert report.num_mismatches == 1
    assert report.first_mismatches["vllm-replay"].what == "operation 7"


def test_files_of_the_other_regime_do_not_pass() -> None:
    """0.22.0 and 0.33.0 free in another order, which shows in what is evicted."""
    path = SHORT / "vllm_replay/vllm-0.22.0/full-09.json"
    data = json.loads(path.read_bytes())
    data["engine_version"] = "0.33.0"

    report = _verify_data(data, "full.json")

    assert report.num_mismatches > 0


def _verify_data(data: dict[str, object], name: str) -> VerificationReport:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, name).write_text(json.dumps(data))
        return verify_folder(folder)
