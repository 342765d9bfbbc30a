"""`prefixaudit gate`: may this be deployed?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from prefixaudit.cli import options
from prefixaudit.cli.command import Command


def gate(
    deployments: Annotated[
        list[Path],
        typer.Argument(
            metavar="DEPLOYMENT...",
            help="prefixaudit.toml, scripts, manifests, compose files; or a folder of them.",
            show_default=False,
        ),
    ],
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="LOG", help="A log to replay: all rules run. Repeatable."),
    ] = None,
    fail_on: Annotated[
        Literal["informational", "low", "medium", "high", "never"] | None,
        typer.Option("--fail-on", help="Least severity that fails; default: [audit], or medium."),
    ] = None,
    fail_on_inconclusive: Annotated[
        bool | None,
        typer.Option(
            "--fail-on-inconclusive/--pass-on-inconclusive",
            help="Do questions fail that an unknown field leaves open? default: [audit], or no.",
            show_default=False,
        ),
    ] = None,
    rules: options.RulesOption = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="FILE", help="Findings in FILE are known: none fails."),
    ] = None,
    write_baseline: Annotated[
        Path | None,
        typer.Option(
            "--write-baseline", metavar="FILE", help="Write the findings to FILE, and accept them."
        ),
    ] = None,
    diff: Annotated[
        list[Path] | None,
        typer.Option(
            "--diff",
            metavar="OLD",
            help="Old deployment file: say what the change does. Repeatable.",
        ),
    ] = None,
    log_format: options.LogFormatOption = None,
    jobs: options.JobsOption = None,
    output_format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="NAME",
            help="text, json, sarif, junit, github or markdown.",
        ),
    ] = "text",
    output: options.OutputOption = None,
    color: options.ColourOption = "auto",
) -> int:
    """May this be deployed? Rules, budgets, and an exit code.

    Without a log the rules about deployments run; with one, all of them, on what the log's requests
    would have been served. Exit 0: nothing at or above --fail-on, all budgets met. 1: a finding or
    a missed budget. 2: wrong usage or configuration. 3: the audit is incomplete.

    \b
    Examples:
      prefixaudit gate prefixaudit.toml
      prefixaudit gate k8s/deployment.yaml prefixaudit.toml --log gateway.jsonl.zst
      prefixaudit gate serve.sh --baseline baseline.json --format sarif -o gate.sarif
      prefixaudit gate new.yaml --diff old.yaml --format markdown
    """
    from prefixaudit.analysis import AnalysisOptions
    from prefixaudit.cli import streams
    from prefixaudit.core.report import RenderOptions
    from prefixaudit.deployment.policy import severity_or_never
    from prefixaudit.deployment.reading import files_of, read_deployments
    from prefixaudit.gate import GateOptions, baseline_text, read_baseline, run_gate
    from prefixaudit.render import gate_renderer

    render = gate_renderer(output_format)
    deployment = read_deployments(deployments)
    old = read_deployments(diff) if diff else None
    progress = streams.ProgressLine()
    try:
        report = run_gate(
            deployment,
            deployment_paths=[str(path) for path in files_of(deployments)],
            log_paths=log or (),
            options=GateOptions(
                fail_on=None if fail_on is None else severity_or_never(fail_on),
                never_fails=fail_on == "never",
                fail_on_inconclusive=fail_on_inconclusive,
                rule_folders=tuple(rules or ()),
                baseline=None if baseline is None else read_baseline(baseline),
                accepts_findings=write_baseline is not None,
            ),
            old=old,
            analysis=AnalysisOptions(log_format=log_format, jobs=jobs),
            progress=progress,
        )
    finally:
        progress.close()
    if write_baseline is not None:
        findings = [item.finding for item in report.findings if item.status != "ignored"]
        text = baseline_text(report.version, findings, report.figures)
        streams.write_file(write_baseline, text.encode("utf-8"))
    colour = streams.wants_colour(color, output)
    streams.write_result(render(report, RenderOptions(colour=colour)), output)
    if report.incomplete is not None:
        streams.complain(f"incomplete: {report.incomplete}")
    return report.exit_code


COMMAND = Command(run=gate, order=10)
