"""`analyse`: the whole run, from paths and a deployment to a Report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from prefixaudit.analysis.gathering import Progress, gather
from prefixaudit.core.report import Report
from prefixaudit.deployment import Deployment

if TYPE_CHECKING:
    from prefixaudit.prompts import Replayer


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisOptions:
    """How a log is read and replayed. `jobs` None is all cores."""

    log_format: str | None = None
    cache_generated: Literal["auto", "on", "off"] = "auto"
    jobs: int | None = None


class Quiet:
    """A Progress that draws nothing."""

    def update(
        self, num_bytes: int, num_bytes_total: int | None, num_requests: int, num_tokens: int
    ) -> None:
        pass

    def stage(self, name: str) -> None:
        pass


def analyse(
    paths: Sequence[str],
    deployment: Deployment,
    options: AnalysisOptions | None = None,
    progress: Progress | None = None,
) -> Report:
    """Read, replay and simulate a log; return all figures.

    The audit is incomplete (`Report.incomplete`) where no request could be replayed, or more than
    half of the records were skipped: figures of the rest would pass for those of the log. A few
    skipped records are reported and no more; a cut last line is what a live log looks like.

    Answers enter the pool where the log has them (`cache_generated` auto or on), else not (off);
    the deployment's own setting applies to auto.

    Raises UsageError and ConfigurationError for wrong settings, IncompleteError for input that
    can't be read at all.
    """
    from prefixaudit.analysis.assembly import empty_report, full_report
    from prefixaudit.logs import ReadOptions, read_logs

    options = options or AnalysisOptions()
    progress = progress or Quiet()
    setting = _generated_setting(options, deployment)
    stream = read_logs(paths, ReadOptions(log_format=options.log_format))
    replayer = _replayer(deployment, options, cache_generated=setting != "off")
    gathered = gather(
        stream, deployment, replayer.replay, cache_generated=setting != "off", progress=progress
    )
    progress.stage("simulating the pool")
    notes = tuple(replayer.statistics.notes)
    if gathered.trace is None:
        return empty_report(gathered, deployment, setting, notes)
    return full_report(gathered, gathered.trace, deployment, setting, notes)


def _generated_setting(
    options: AnalysisOptions, deployment: Deployment
) -> Literal["auto", "on", "off"]:
    if options.cache_generated != "auto" or deployment.cache_generated is None:
        return options.cache_generated
    return "on" if deployment.cache_generated else "off"


def _replayer(
    deployment: Deployment, options: AnalysisOptions, *, cache_generated: bool
) -> Replayer:
    from prefixaudit.prompts import Replayer

    return Replayer(deployment.model_dir)
