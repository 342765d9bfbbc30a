"""Processes that replay prompts: who ends them, and what Ctrl-C does to them."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import RawText, Request, Skipped, Source
from prefixaudit.prompts import replay_many
from tests.prompts.cases import case_folder


def _log() -> list[Request | Skipped]:
    return [
        Request(
            request_id=f"r{number}",
            source=Source(path="log", line=number + 1),
            prompt=RawText(text=f"prompt {number}"),
        )
        for number in range(8)
    ]


def test_processes_do_not_hear_ctrl_c_and_end_at_once_when_nobody_wants_more(
    tmp_path: Path,
) -> None:
    shutil.copy(case_folder("B001") / "tokenizer.json", tmp_path)
    others = set(multiprocessing.active_children())
    prompts: Iterator[Prompt | Skipped] = iter(replay_many(_log(), tmp_path, jobs=2))
    assert isinstance(next(prompts), Prompt)
    processes = set(multiprocessing.active_children()) - others
    assert processes

    for process in processes:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGINT)
        process.join(0.2)
        assert process.is_alive()

    prompts.close()  # type: ignore[attr-defined]
    # Ended by a signal, not by an empty queue: a batch under way isn't waited for.
    assert {process.exitcode for process in processes} == {-signal.SIGTERM}
