"""Sentences of a report: how the figures were made, and what they can't say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from prefixaudit.analysis.gathered import Gathered
from prefixaudit.analysis.simulating import Simulated
from prefixaudit.core.log_fact import LogFact, LogFactKind
from prefixaudit.core.trace import BlockTrace
from prefixaudit.deployment import Deployment

# What a text report says elsewhere: beside skipped records, hit rates, and where tokens go.
_SAID_ELSEWHERE: Final[frozenset[LogFactKind]] = frozenset(
    {"log-damaged", "log-incomplete-tail", "log-truncated-prompt", "log-no-prompt",
     "trace-resolution", "block-rounding"}
)  # fmt: skip


def notes_of_facts(facts: Iterable[LogFact]) -> Iterator[str]:
    """Yield what is to be known of the log itself."""
    for fact in facts:
        if fact.kind in _SAID_ELSEWHERE:
            continue
        places = f"{', '.join(fact.sources[:3])}{' …' * (len(fact.sources) > 3)}: "
        yield f"{places if fact.sources else ''}{fact.about} ({fact.num:,} in all)"


def notes_for(
    gathered: Gathered,
    trace: BlockTrace,
    deployment: Deployment,
    setting: str,
    fields: tuple[str, ...],
    simulated: Simulated,
) -> tuple[str, ...]:
    """Return the notes of a report, the weightiest first."""
    return (
        *_about_answers(gathered, trace, setting),
        *_about_lengths(gathered),
        *_about_ids(gathered, trace),
        *_about_model(deployment),
        *_about_pool(trace, deployment, fields, simulated),
        *_about_reading(gathered, deployment),
    )


def _about_answers(gathered: Gathered, trace: BlockTrace, setting: str) -> Iterator[str]:
    num_with, num_without = gathered.num_with_answer, gathered.num_without_answer
    total = num_with + num_without
    if setting == "off":
        yield "answers don't enter the pool (--cache-generated off)"
        return
    if num_with:
        yield (
            f"answers enter the pool: {int(trace.num_generated_tokens.sum()):,} tokens of "
            f"{num_with:,} requests, all but the last token of each"
        )
    if num_without:
        whose = "no request" if num_without == total else f"{num_without:,} of {total:,} requests"
        has = "has its answer" if num_without == total else "don't have their answer"
        by_length = (
            f" ({gathered.num_answers_by_length_only:,} give its length only)"
            if gathered.num_answers_by_length_only
            else ""
        )
        yield (
            f"{whose} {has} in the log{by_length}: what was generated there can't be reused here, "
            "so a follow-up turn may hit more than shown, and takes up no room in the pool"
        )


def _about_lengths(gathered: Gathered) -> Iterator[str]:
    agreement = gathered.prompt_lengths.agreement()
    if agreement is not None and agreement.num_equal < agreement.num_compared:
        differ = agreement.num_compared - agreement.num_equal
        yield (
            f"{differ:,} of {agreement.num_compared:,} replayed prompts differ in length from what "
            f"the server reported ({agreement.num_more:,} longer, {agreement.num_less:,} shorter): "
            "the template or tokenizer given is not quite the server's"
        )
    if gathered.num_approximate:
        yield (
            f"{gathered.num_approximate:,} prompts hold media whose number of tokens isn't known: "
            "their lengths and hits are approximate"
        )


def _about_ids(gathered: Gathered, trace: BlockTrace) -> Iterator[str]:
    if gathered.trace_blocks:
        yield (
            f"the log holds ids of {trace.block_size}-token blocks: where inside a block two "
            "prompts part isn't known, so smaller blocks can only be given as a range"
        )


def _about_model(deployment: Deployment) -> Iterator[str]:
    if deployment.model is None:
        hardware = deployment.hardware
        names = ["FLOPs"]
        if hardware is not None and hardware.gpu is not None:
            names.append("seconds")
        if deployment.cache is None:
            names.append("KV bytes")
        what = f"{', '.join(names[:-1])} and {names[-1]}" if names[1:] else names[0]
        yield f"{what} aren't given: {deployment.model_problem or 'no model (--model)'}"
        if deployment.cache is not None:
            yield "KV bytes are those that config.json itself names, layer by layer"
    else:
        yield (
            "FLOPs: two a multiply-add, attention counted causally as kernels do it, the LM head "
            "once a prompt and never saved"
        )


def _about_pool(
    trace: BlockTrace, deployment: Deployment, fields: tuple[str, ...], simulated: Simulated
) -> Iterator[str]:
    if deployment.engine is None:
        yield (
            "no engine given (--engine): blocks are kept apart by every field that changes the KV "
            "and by salt; at least one token of a prompt is computed"
        )
    else:
        yield from deployment.engine.notes
        yield f"blocks are kept apart by tokens, media, {', '.join(fields)}"
    order = "in order of arrival"
    if np.isnan(trace.arrival_s).any():
        order = "in the log's order (not every request has a time)"
    yield f"pool: {simulated.about}"
    yield (
        f"requests are served one after another {order}: what runs at the same time takes no room "
        "and shares nothing yet"
    )
    yield from simulated.notes


def _about_reading(gathered: Gathered, deployment: Deployment) -> Iterator[str]:
    if gathered.replay.num_media:
        yield (
            f"{gathered.replay.num_media:,} images or other media in messages, "
            f"{gathered.replay.num_media_bytes:,} bytes of them in the log: known by a digest of "
            "their content (else of their address or id), never tokenized as text"
        )
    yield from gathered.log_notes
    ignored = [path for path in gathered.ignored_files if not _is_deployment(path, deployment)]
    if ignored:
        names = ", ".join(ignored[:3])
        more = f" and {len(ignored) - 3:,} more" if len(ignored) > 3 else ""
        yield f"not read, no logs by name or content: {names}{more}"


def _is_deployment(path: str, deployment: Deployment) -> bool:
    """Say whether a file of the log's folder is the deployment file or of the model folder."""
    if deployment.path is not None and Path(path) == deployment.path:
        return True
    folder = deployment.model_dir
    return folder is not None and Path(path).resolve().is_relative_to(folder.resolve())
