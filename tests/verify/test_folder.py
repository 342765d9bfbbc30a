"""Walking a folder of golden vectors: every file is verified, or named with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.errors import UsageError
from prefixaudit.verify import VerificationReport, verify_folder

GOLDENS = Path(__file__).parents[1] / "data" / "goldens"
SHARED = Path(__file__).parents[3] / "shared" / "goldens"
HASH_KINDS = (
    "vllm-hashes",
    "sglang-hashes",
    "lmcache-hashes",
    "dynamo-hashes",
    "llmd-hashes",
    "reference",
)
LLMD = GOLDENS / "llmd_hashes" / "llm-d-kv-cache-0.8.json"


def _table(report: VerificationReport) -> str:
    """The counted table, for the message of a failing test."""
    rows = [
        f"{row.kind} {row.engine_version}: {row.num_files} files, {row.num_cases} cases, "
        f"{row.num_operations} operations, {row.num_mismatches} mismatches"
        for row in report.kinds
    ]
    return "\n".join(
        [*rows, *map(str, report.first_mismatches.values()), *map(str, report.problems)]
    )


@pytest.mark.parametrize("kind", HASH_KINDS)
def test_small_vectors_are_equal(kind: str) -> None:
    report = verify_folder(GOLDENS, kinds=[kind])

    assert report.is_equal, _table(report)
    assert not report.not_reproduced


@pytest.mark.parametrize("kind", HASH_KINDS)
def test_all_recorded_hash_vectors_are_equal(kind: str) -> None:
    if not SHARED.is_dir():
        pytest.skip("the full set of vectors isn't here")
    report = verify_folder(SHARED, kinds=[kind])
    print(_table(report))

    assert report.is_equal, _table(report)
    assert not report.not_reproduced


def _write(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return path


def _llmd() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(LLMD.read_text(encoding="utf-8"))
    return data


def test_a_single_file_outside_a_folder_of_its_kind_is_recognised_by_content(
    tmp_path: Path,
) -> None:
    path = _write(tmp_path, "mine.json", _llmd())

    (row,) = verify_folder(path).kinds

    assert (row.kind, row.num_files, row.num_mismatches) == ("llmd-hashes", 1, 0)


@pytest.mark.parametrize("kind", HASH_KINDS[:-1])
def test_each_kind_is_recognised_by_content(kind: str, tmp_path: Path) -> None:
    source = next((GOLDENS / kind.replace("-", "_")).glob("*.json"))
    path = _write(tmp_path, "a.json", source.read_text(encoding="utf-8"))

    assert [row.kind for row in verify_folder(path).kinds] == [kind]


def test_a_kinds_own_folder_can_be_given() -> None:
    (row,) = verify_folder(GOLDENS / "llmd_hashes").kinds

    assert row.kind == "llmd-hashes"
    assert row.num_cases == len(_llmd()["cases"])


def test_a_wrong_value_is_a_mismatch_that_is_given_in_full(tmp_path: Path) -> None:
    data = _llmd()
    right = data["cases"][1]["keys"][0]
    data["cases"][1]["keys"][0] = "17"
    _write(tmp_path, "llmd_hashes/a.json", data)

    report = verify_folder(tmp_path)

    assert not report.is_equal
    assert report.num_mismatches == 1
    mismatch = report.first_mismatches["llmd-hashes"]
    assert (mismatch.file, mismatch.what) == ("llmd_hashes/a.json", "key of block 0")
    assert (mismatch.expected, mismatch.found) == ("17", right)


def test_a_missing_value_is_a_mismatch_too(tmp_path: Path) -> None:
    data = _llmd()
    last = data["cases"][0]["keys"].pop()
    _write(tmp_path, "llmd_hashes/a.json", data)

    mismatch = verify_folder(tmp_path).first_mismatches["llmd-hashes"]

    assert (mismatch.expected, mismatch.found) == ("(nothing)", last)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        ({"engine": "llm-d-kv-cache", "cases": [{}]}, "KeyError"),
        ({"engine": "llm-d-kv-cache", "cases": []}, "holds no case"),
        ({"engine": "llm-d-kv-cache"}, "KeyError"),
        ({"engine": "llm-d-kv-cache", "cases": 3}, "TypeError"),
    ],
)
def test_a_broken_file_is_reported_and_never_equal(
    content: object, reason: str, tmp_path: Path
) -> None:
    _write(tmp_path, "llmd_hashes/good.json", _llmd())
    _write(tmp_path, "llmd_hashes/bad.json", content)

    report = verify_folder(tmp_path)

    (problem,) = report.problems
    assert problem.name == "llmd_hashes/bad.json"
    assert reason in problem.reason
    assert not report.is_equal
    assert report.num_mismatches == 0


def test_a_release_that_is_not_known_is_a_broken_file(tmp_path: Path) -> None:
    _write(tmp_path, "vllm_hashes/a.json", {"engine": "vllm", "engine_version": "0.1", "cases": []})

    (problem,) = verify_folder(tmp_path).problems

    assert "older than all releases known" in problem.reason


def test_unknown_files_and_folders_are_named(tmp_path: Path) -> None:
    _write(tmp_path, "llmd_hashes/good.json", _llmd())
    _write(tmp_path, "other_engine/x.json", {"engine": "other"})
    _write(tmp_path, "notes.bin", "x")
    _write(tmp_path, "README.md", "documents are no vectors")

    report = verify_folder(tmp_path)

    assert [entry.name for entry in report.unknown] == ["notes.bin", "other_engine/x.json"]
    assert report.is_equal
    assert not report.is_complete


def test_a_field_that_is_not_understood_is_named(tmp_path: Path) -> None:
    data = _llmd()
    data["cases"][0]["rotation"] = 3
    _write(tmp_path, "llmd_hashes/a.json", data)

    (left_out,) = verify_folder(tmp_path).not_reproduced

    assert "rotation" in left_out.reason


def test_a_case_that_only_its_own_process_could_hash_is_named(tmp_path: Path) -> None:
    case = {
        "algo": "builtin",
        "seq": "a",
        "block_size": 2,
        "none_hash": {"int": "5"},
        "hashes": [{"int": "1"}],
    }
    data = {
        "engine": "vllm",
        "engine_version": "0.8.5",
        "python": "3.11.7",
        "pythonhashseed": None,
        "sequences": {"a": [1, 2]},
        "cases": [case],
    }
    _write(tmp_path, "vllm_hashes/a.json", data)

    report = verify_folder(tmp_path)

    (left_out,) = report.not_reproduced
    assert "differs by process" in left_out.reason
    assert not report.is_complete


def test_an_empty_folder_is_not_equal(tmp_path: Path) -> None:
    assert not verify_folder(tmp_path).is_equal


def test_a_missing_folder_and_an_unknown_kind_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        verify_folder(tmp_path / "none")
    with pytest.raises(UsageError, match="unknown kind of golden vectors"):
        verify_folder(tmp_path, kinds=["vllm-hash"])


def test_rows_are_ordered_by_release() -> None:
    versions = [row.engine_version for row in verify_folder(GOLDENS / "vllm_hashes").kinds]

    assert versions.index("0.9.2") < versions.index("0.10.1") < versions.index("0.33.0")
