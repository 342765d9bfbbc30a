"""What `prefixaudit verify` prints of a VerificationReport."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from prefixaudit.cli.tables import Table, labelled, lines_of
from prefixaudit.json_text import json_text
from prefixaudit.printable import printable
from prefixaudit.verify import FileProblem, NotReproduced, VerificationReport

SCHEMA_VERSION = 1


def exit_code(report: VerificationReport) -> int:
    """Return 1 where something differs, 3 where not every JSON file could be verified.

    3 too where nothing was: a file that is broken or of no known kind says nothing of this
    installation.
    """
    if report.num_mismatches:
        return 1
    return 3 if report.problems or report.unknown_vectors or not report.num_files else 0


def as_json(report: VerificationReport) -> str:
    """Return the report as indented JSON."""
    values = {
        "schema_version": SCHEMA_VERSION,
        "root": report.root,
        "is_equal": report.is_equal,
        "is_complete": report.is_complete,
        "num_files": report.num_files,
        "num_mismatches": report.num_mismatches,
        "kinds": [asdict(row) for row in report.kinds],
        "first_mismatches": {
            kind: asdict(mismatch) for kind, mismatch in report.first_mismatches.items()
        },
        "not_reproduced": [asdict(item) for item in report.not_reproduced],
        "problems": [asdict(item) for item in report.problems],
        "unknown": [asdict(item) for item in report.unknown],
    }
    return json_text(values)


def as_text(report: VerificationReport) -> str:
    """Return the counted table, the first mismatch of each kind in full, and what was left out."""
    rows = [
        (
            row.kind,
            f"{row.engine} {row.engine_version}".strip(),
            f"{row.num_files:,}",
            f"{row.num_configs:,}" if row.num_configs else "",
            f"{row.num_cases:,}",
            f"{row.num_operations:,}",
            f"{row.num_mismatches:,}",
        )
        for row in report.kinds
    ]
    total = (
        "in all",
        "",
        *(
            f"{sum(getattr(row, name) for row in report.kinds):,}"
            for name in (
                "num_files",
                "num_configs",
                "num_cases",
                "num_operations",
                "num_mismatches",
            )
        ),
    )
    heads: tuple[str, ...]
    heads = ("kind", "engine", "files", "configs", "cases", "operations", "mismatches")
    table_rows: list[tuple[str, ...]] = [*rows, total]
    if not any(row.num_configs for row in report.kinds):
        heads = heads[:3] + heads[4:]
        table_rows = [row[:3] + row[4:] for row in table_rows]
    table = Table(heads=heads, rows=tuple(table_rows), right=frozenset(range(2, len(heads))))
    lines = [printable(report.root), "", *lines_of(table)]
    for kind, mismatch in report.first_mismatches.items():
        lines += [
            "",
            f"first mismatch of {kind}",
            *labelled(
                [
                    ("file", mismatch.file),
                    ("case", mismatch.case),
                    ("what", mismatch.what),
                    ("expected", mismatch.expected),
                    ("found", mismatch.found),
                ]
            ),
        ]
    lines += _left_out("could not be recomputed", report.not_reproduced)
    lines += _problems("broken", report.problems)
    lines += _problems("of no known kind, not verified", report.unknown)
    lines += ["", _verdict(report)]
    return "\n".join(lines)


def _left_out(title: str, items: Sequence[NotReproduced]) -> list[str]:
    if not items:
        return []
    rows = [(f"{item.file} {item.case}".strip(), item.reason) for item in items]
    return ["", f"{len(items):,} {title}", *labelled(rows)]


def _problems(title: str, items: Sequence[FileProblem]) -> list[str]:
    if not items:
        return []
    return ["", f"{len(items):,} {title}", *labelled([(item.name, item.reason) for item in items])]


def _verdict(report: VerificationReport) -> str:
    code = exit_code(report)
    if code == 1:
        return f"exit 1: {report.num_mismatches:,} operations differ"
    if code == 3:
        if not report.num_files:
            return "exit 3: nothing was verified"
        broken, unknown = len(report.problems), len(report.unknown_vectors)
        counts = [
            f"{count:,} {what}"
            for count, what in ((broken, "broken"), (unknown, "of no known kind"))
            if count
        ]
        return f"exit 3: incomplete, JSON files that say nothing: {', '.join(counts)}"
    return "exit 0: all equal" + ("" if report.is_complete else ", but not all was verified")
