"""`analyse`: the whole run, from paths and a deployment to a Report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from prefixaudit.analysis.gathered import Gathered, from_trace_file
from prefixaudit.analysis.gathering import IdReplay, LogItem, Progress, gather, holds_ids
from prefixaudit.analysis.options import AnalysisOptions
from prefixaudit.core.report import Report
from prefixaudit.core.request import ChatMessages, RawText, Request
from prefixaudit.core.trace_batch import TraceBatch
from prefixaudit.deployment import Deployment
from prefixaudit.errors import ConfigurationError, UsageError
from prefixaudit.prompts import AS_SENT, ReplayOptions, rules_of

if TYPE_CHECKING:
    from prefixaudit.analysis.auditing import Auditing
    from prefixaudit.analysis.reasons import Reasons
    from prefixaudit.analysis.warming import Warming
    from prefixaudit.prompts import Replayer, ReplayRun

# A process takes about a second to start and replays a few megabytes a second.
_BYTES_WORTH_A_PROCESS: Final = 32 << 20


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
    from prefixaudit.analysis.sizing import check_capacity

    options = options or AnalysisOptions()
    progress = progress or Quiet()
    check_capacity(deployment)
    auditing = _auditing(deployment, options)
    reasons = _reasons(deployment, options)
    warming = _warming(deployment, options)
    gathered = gather_logs(paths, deployment, options, progress, auditing, reasons, warming)
    setting = generated_setting(options, deployment)
    progress.stage("simulating the pool")
    if gathered.trace is None:
        return empty_report(gathered, deployment, setting)
    report = full_report(gathered, gathered.trace, deployment, setting, auditing, reasons, warming)
    if options.what_if and reasons is not None:
        from prefixaudit.analysis.what_if import with_what_ifs

        progress.stage("replaying repairs")
        report = with_what_ifs(report, gathered.trace, reasons, paths, deployment, options)
    return report


def _reasons(deployment: Deployment, options: AnalysisOptions) -> Reasons | None:
    if not options.why:
        return None
    from prefixaudit.analysis.reasons import Reasons

    caches_answers = generated_setting(options, deployment) != "off"
    return Reasons(
        deployment,
        cache_generated=caches_answers,
        replay_options=replay_options_for(deployment, encode_generated=caches_answers),
    )


def _warming(deployment: Deployment, options: AnalysisOptions) -> Warming | None:
    if options.warm_from is None:
        return None
    from prefixaudit.analysis.warming import Warming

    if options.what_if:
        raise UsageError(
            "--what-if replays repaired logs from an empty pool; it can't go with --warm-from"
        )
    return Warming(options.warm_from, deployment)


def _auditing(deployment: Deployment, options: AnalysisOptions) -> Auditing | None:
    if not options.audit:
        return None
    from prefixaudit.analysis.auditing import Auditing

    caches_answers = generated_setting(options, deployment) != "off"
    return Auditing(
        deployment,
        cache_generated=caches_answers,
        replay_options=replay_options_for(deployment, encode_generated=caches_answers),
        rule_folders=options.rule_folders,
    )


def gather_logs(
    paths: Sequence[str],
    deployment: Deployment,
    options: AnalysisOptions,
    progress: Progress,
    auditing: Auditing | None = None,
    reasons: Reasons | None = None,
    warming: Warming | None = None,
) -> Gathered:
    """Read and replay logs, or read an export back; the expensive half of `analyse`.

    Raises UsageError, ConfigurationError and IncompleteError as `analyse` does.
    """
    from prefixaudit.logs import one_by_one, read_logs

    if len(paths) == 1 and options.log_format is None and _is_trace_file(Path(paths[0])):
        if warming is not None:
            raise UsageError(
                f"{paths[0]}: an export holds no tokens that those of a dump could match"
            )
        return from_trace_file(Path(paths[0]))
    caches_answers = generated_setting(options, deployment) != "off"
    stream = read_logs(paths, options.read_options(deployment))
    replay_options = replay_options_for(deployment, encode_generated=caches_answers)

    def make_replayer() -> Replayer:
        from prefixaudit.prompts import Replayer

        return Replayer(deployment.model_dir, replay_options)

    def replay(
        items: Iterable[LogItem], first: Request | TraceBatch | None
    ) -> ReplayRun | IdReplay:
        if holds_ids(first):
            return IdReplay(items, make_replayer)
        from prefixaudit.prompts import replay_many

        jobs = _jobs(options, first, stream.num_bytes_total)
        return replay_many(one_by_one(items), deployment.model_dir, replay_options, jobs=jobs)

    return gather(
        stream,
        deployment,
        replay,
        cache_generated=caches_answers,
        progress=progress,
        auditing=auditing,
        reasons=reasons,
        warming=warming,
    )


def _is_trace_file(path: Path) -> bool:
    """Say whether a path is what `prefixaudit export` wrote; no for what can't be read."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            start = file.read(64)
    except OSError:
        return False
    if not start.startswith(b"PK"):
        return False
    from prefixaudit.chain.export import is_trace_file

    return is_trace_file(start)


def replay_options_for(deployment: Deployment, *, encode_generated: bool = True) -> ReplayOptions:
    """Return how prompts are replayed under a deployment: template, server's rules, time zone."""
    engine = deployment.engine
    rules = AS_SENT if engine is None else rules_of(engine.name, engine.version)
    changes: dict[str, Any] = dict(deployment.rendering.server_rules)
    rules = replace(rules, **changes)
    template = None
    if deployment.chat_template is not None:
        template = _template_text(deployment.chat_template)
    return ReplayOptions(
        chat_template=template,
        time_zone=deployment.rendering.time_zone,
        rules=rules,
        encode_generated=encode_generated,
    )


def _template_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path}: byte {error.start} is not UTF-8; chat templates are UTF-8"
        ) from None


def _jobs(
    options: AnalysisOptions, first: Request | TraceBatch | None, num_bytes: int | None
) -> int:
    """Return the processes to replay in: one for each 32 MiB of text, not more than cores.

    Where a log's first request has ids there is nothing to render or encode.
    """
    if not isinstance(first, Request) or not isinstance(first.prompt, ChatMessages | RawText):
        return 1
    if options.jobs is not None:
        return options.jobs
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    worth = 1 if num_bytes is None else 1 + num_bytes // _BYTES_WORTH_A_PROCESS
    return max(1, min(cores or 1, worth))


def generated_setting(
    options: AnalysisOptions, deployment: Deployment
) -> Literal["auto", "on", "off"]:
    if options.cache_generated != "auto" or deployment.cache_generated is None:
        return options.cache_generated
    return "on" if deployment.cache_generated else "off"
