"""SageMaker data capture: bodies as text or base64, of OpenAI's shape or as `inputs`."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.core.request import ChatMessages, NotReplayable, RawText
from tests.logs.reading import Read, read_records

BODY = {"model": "m", "messages": [{"role": "user", "content": "Berths?"}]}


def part(value: Any, encoding: str = "JSON") -> dict[str, str]:
    text = value if isinstance(value, str) else json.dumps(value)
    if encoding == "BASE64":
        text = base64.b64encode(text.encode()).decode()
    return {"mode": "INPUT", "data": text, "encoding": encoding}


def read(folder: Path, **parts: Any) -> Read:
    about = {"eventId": "ev", "inferenceTime": "2026-03-02T08:00:00Z"}
    return read_records(folder, {"captureData": parts, "eventMetadata": about, "eventVersion": "0"})


@pytest.mark.parametrize("encoding", ["JSON", "BASE64"])
def test_capture_is_carried(tmp_path: Path, encoding: str) -> None:
    usage = {"usage": {"prompt_tokens": 40, "completion_tokens": 3}}
    (request,) = read(
        tmp_path, endpointInput=part(BODY, encoding), endpointOutput=part(usage, encoding)
    ).requests

    assert isinstance(request.prompt, ChatMessages)
    assert (request.request_id, request.arrival_s) == ("ev", 1772438400.0)
    assert request.usage.num_prompt_tokens == 40


def test_inputs_of_text_generation_containers_are_text(tmp_path: Path) -> None:
    (request,) = read(
        tmp_path,
        endpointInput=part({"inputs": "Berths?", "parameters": {}}),
        endpointOutput=part([{"generated_text": "Four."}]),
    ).requests

    assert request.prompt == RawText(text="Berths?")
    assert request.generated == RawText(text="Four.", add_special_tokens=False)


def test_cut_body_is_not_replayed_and_damaged_base64_is_skipped(tmp_path: Path) -> None:
    cut = read(tmp_path, endpointInput=part('{"messages": [{"ro')).requests[0].prompt
    damaged = read(tmp_path, endpointInput={"data": "%%", "encoding": "BASE64"})

    assert isinstance(cut, NotReplayable)
    assert cut.kind == "cut-body"
    assert damaged.skips == [(1, "bad-field")]


def test_capture_of_the_output_only_has_no_prompt(tmp_path: Path) -> None:
    prompt = read(tmp_path, endpointOutput=part({})).requests[0].prompt

    assert isinstance(prompt, NotReplayable)
    assert prompt.kind == "no-prompt"
