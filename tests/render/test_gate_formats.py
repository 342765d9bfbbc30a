"""A gate in every format: valid for its reader, escaped, and of one exit code."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import pytest

from prefixaudit.core.finding import Location
from prefixaudit.core.report import RenderOptions
from prefixaudit.render import RENDERERS, gate_renderer
from tests.gate.gates import a_gate, clean_gate, finding

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "tests" / "data" / "schemas" / "sarif-2.1.0.json"
FORMATS = [name for name in RENDERERS.names if RENDERERS[name].render_gate is not None]


def rendered(name: str, *, clean: bool = False) -> str:
    return gate_renderer(name)(clean_gate() if clean else a_gate(), RenderOptions())


def sarif(*, clean: bool = False) -> Any:
    return json.loads(rendered("sarif", clean=clean))["runs"][0]


def test_gate_has_six_formats() -> None:
    assert {"github", "json", "junit", "markdown", "sarif", "text"} <= set(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_format_holds_no_control_character_and_can_be_encoded(name: str) -> None:
    text = rendered(name)

    text.encode("utf-8")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]", text)


@pytest.mark.parametrize("clean", [True, False])
def test_sarif_is_valid(clean: bool) -> None:
    schema = json.loads(SCHEMA.read_bytes())
    log = json.loads(rendered("sarif", clean=clean))

    jsonschema.Draft4Validator.check_schema(schema)
    jsonschema.Draft4Validator(schema).validate(log)


def test_sarif_result_has_one_location_and_each_log_line_once() -> None:
    first = sarif()["results"][0]

    [location] = first["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "deploy/a%20b%2Cc%3Ad%25.yaml"},
        "region": {"startLine": 7},
    }
    lines = [
        place["physicalLocation"]["region"]["startLine"] for place in first["relatedLocations"]
    ]
    assert lines == [5, 2, 6]


def test_sarif_says_what_is_known_ignored_and_open() -> None:
    states = [
        (result["kind"], result["baselineState"], "suppressions" in result)
        for result in sarif()["results"]
    ]

    assert states == [
        ("fail", "new", False),
        ("fail", "new", False),
        ("review", "new", False),
        ("fail", "unchanged", False),
        ("fail", "new", True),
    ]


def test_sarif_rules_are_found_by_index() -> None:
    run = sarif()
    rules = run["tool"]["driver"]["rules"]

    assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] for r in run["results"])


def test_fingerprint_changes_with_rule_and_subject_and_not_with_the_message() -> None:
    first = finding("a-rule", "subject").fingerprint

    assert finding("a-rule", "subject", message="other figures").fingerprint == first
    assert finding("a-rule", "other").fingerprint != first
    assert finding("b-rule", "subject").fingerprint != first
    assert re.fullmatch("[0-9a-f]{32}", first)


def test_junit_parses_and_counts() -> None:
    xml = junitparser.JUnitXml.fromroot(
        junitparser.JUnitXml.fromstring(rendered("junit").encode())._elem
    )
    [suite] = list(xml)
    cases = {case.name: case for case in suite}

    # Three rules and two budgets; the first rule and the first budget fail.
    assert (suite.tests, suite.failures, suite.errors) == (5, 2, 0)
    failed = {name for name, case in cases.items() if not case.is_passed}
    assert failed == {"first-rule", "min_token_hit_rate"}
    assert "[known]" in str(cases["second-rule"].system_out)


def test_junit_error_where_the_audit_is_incomplete() -> None:
    gate = replace(clean_gate(), incomplete="nothing could be read")
    text = gate_renderer("junit")(gate, RenderOptions())
    [suite] = list(junitparser.JUnitXml.fromfile(io.BytesIO(text.encode())))

    assert (gate.exit_code, suite.errors) == (3, 1)


def unescaped(text: str) -> str:
    """What the runner shows: the inverse of the toolkit's escaping."""
    for code, char in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(code, char)
    return text


def test_github_annotation_is_one_command_with_everything_escaped() -> None:
    lines = rendered("github").splitlines()

    assert all(line.startswith("::") for line in lines)
    match = re.fullmatch(r"::error file=([^,:]*),line=7,title=([^,:]*)::(.*)", lines[0])
    assert match is not None
    assert unescaped(match[1]) == "deploy/a b,c:d%.yaml"
    assert unescaped(match[2]) == "first-rule (high)"
    assert "100%25 <b>" in match[3]
    assert "%0A" in match[3]


def test_path_cannot_steer_the_log_viewer_of_github() -> None:
    gate = a_gate()
    place = Location(path="a\x1b[31m\rb\x07.yaml", line=7)
    findings = tuple(
        replace(
            item,
            finding=replace(
                item.finding, observation=replace(item.finding.observation, location=place)
            ),
        )
        for item in gate.findings
    )

    text = gate_renderer("github")(replace(gate, findings=findings), RenderOptions())

    assert r"file=a\x1b[31m%0Db\x07.yaml," in text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f]", text)


def test_github_leaves_out_what_is_known_or_ignored() -> None:
    text = rendered("github")

    assert text.count("title=second-rule") == 1
    assert "without an answer: 1 (second-rule)" in text
    assert "third-rule" not in text
    assert text.splitlines()[-1].startswith("::error title=prefixaudit::failed")


def test_markdown_shows_text_from_outside_as_it_is() -> None:
    [row] = [line for line in rendered("markdown").splitlines() if "first-rule" in line]

    assert "<b>" not in row
    assert "@team" not in row
    assert "http://" not in row
    # Four cells: bars in texts are escaped.
    assert len(re.findall(r"(?<!\\)\|", row)) == 5


def test_json_names_every_finding_with_its_status() -> None:
    values = json.loads(rendered("json"))

    assert values["schema_version"] == 1
    assert values["exit_code"] == 1
    assert [item["status"] for item in values["findings"]] == [
        "new",
        "new",
        "new",
        "known",
        "ignored",
    ]
    assert values["findings"][0]["location"] == {"path": "deploy/a b,c:d%.yaml", "line": 7}


@pytest.mark.parametrize("clean", [True, False])
def test_json_matches_the_schema_that_ships(clean: bool) -> None:
    schema = json.loads((ROOT / "prefixaudit" / "schemas" / "gate.schema.json").read_bytes())
    values = json.loads(rendered("json", clean=clean))

    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(values, schema)
    # Every key is described.
    assert set(values) == set(schema["properties"])


def test_text_of_a_clean_gate() -> None:
    assert (
        rendered("text", clean=True)
        == """\
prefixaudit 0.1.0 gate · deploy/prefixaudit.toml
3 rules · log logs/x.jsonl

CHANGES  + better, - worse
  HITS
    log, rate: 1 -> 2

NOTES
  - a note
  - not known: a: version of vllm

exit 0: passed
"""
    )


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_names_what_fails(name: str) -> None:
    text = rendered(name)

    assert "first-rule" in text
    assert "min_token_hit_rate" in text.replace("\\", "")
