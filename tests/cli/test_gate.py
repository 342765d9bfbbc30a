"""`prefixaudit gate` and `prefixaudit init`: exit codes, files, formats."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.cli.running import Runner

SAMPLES = Path(__file__).parents[2] / "samples" / "deployments"
DATA = Path(__file__).parents[1] / "data"
SAFE = SAMPLES / "single-tenant" / "compose.yaml"
RISKY = SAMPLES / "multi-tenant" / "deployment.yaml"


@pytest.mark.parametrize("name", ["text", "json", "sarif", "junit", "github", "markdown"])
def test_format_does_not_change_the_exit_code(cli: Runner, name: str) -> None:
    codes = [cli("gate", path, "--format", name).code for path in (SAFE, RISKY)]

    assert codes == [0, 1]


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir()))
def test_sarif_of_a_sample_is_valid(cli: Runner, sample: str) -> None:
    schema = json.loads((DATA / "schemas" / "sarif-2.1.0.json").read_bytes())
    files = sorted((SAMPLES / sample).iterdir())
    log = cli("gate", *files, "--format", "sarif").json

    jsonschema.Draft4Validator(schema).validate(log)


def test_severity_decides(cli: Runner) -> None:
    assert cli("gate", RISKY, "--fail-on", "never").code == 0
    assert cli("gate", SAFE, "--fail-on", "low", "--fail-on-inconclusive").code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.yaml"], "can't be read"),
        ([SAFE, "--format", "pdf"], "unknown output format"),
        ([SAFE, "--baseline", "nowhere.json"], "can't be read"),
        ([SAFE, "--rules", "nowhere"], "no such folder of rules"),
        ([SAFE, "--fail-on", "critical"], "--fail-on"),
    ],
)
def test_wrong_usage_is_2(cli: Runner, arguments: list[object], message: str) -> None:
    ran = cli("gate", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_unreadable_log_is_3(cli: Runner, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("no log\n")

    assert cli("gate", SAFE, "--log", log).code == 3


def test_baseline_is_written_and_then_nothing_is_new(cli: Runner, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"

    assert cli("gate", RISKY, "--write-baseline", path).code == 0
    assert cli("gate", RISKY, "--baseline", path).code == 0
    assert json.loads(path.read_bytes())["findings"]


def test_diff_says_what_is_new(cli: Runner) -> None:
    ran = cli("gate", RISKY, "--diff", SAFE, "--format", "json")

    new = [c for c in ran.json["changes"] if c["kind"] == "finding" and c["effect"] == "worse"]
    assert any("store-key-without-adapter" in change["subject"] for change in new)


def test_init_writes_what_gate_then_judges_alike(cli: Runner, tmp_path: Path) -> None:
    path = tmp_path / "prefixaudit.toml"

    assert cli("init", RISKY, "-o", path).code == 0
    before = cli("gate", RISKY, "--format", "json").json
    after = cli("gate", path, "--format", "json").json

    def facts(report: dict[str, list[dict[str, object]]]) -> list[object]:
        return [(item["fingerprint"], item["message"]) for item in report["findings"]]

    assert facts(before) == facts(after)
