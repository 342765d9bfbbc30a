"""Reads the cases under tests/data/cases by hand: what a log reader would make of their lines."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np

from prefixaudit.core.request import ChatMessages, RawText, Request, Source, TokenIds
from prefixaudit.core.unknown import UNKNOWN

CASES = Path(__file__).parents[1] / "data" / "cases"


def case_folder(name: str) -> Path:
    (folder,) = CASES.glob(f"{name}-*")
    return folder


def expected(name: str) -> dict[str, Any]:
    text = (case_folder(name) / "expected.json").read_text()
    answer: dict[str, Any] = json.loads(text)["answer"]
    return answer


def requests_of(name: str) -> list[Request]:
    (log,) = case_folder(name).glob("*.jsonl")
    lines = log.read_text().splitlines()
    return [_request(json.loads(line), line_number) for line_number, line in enumerate(lines, 1)]


def _request(record: dict[str, Any], line: int) -> Request:
    body = record["body"]
    arrival_s = (
        datetime.datetime.fromisoformat(record["timestamp"]).timestamp()
        if "timestamp" in record
        else UNKNOWN
    )
    output = record.get("output_token_ids")
    return Request(
        request_id=record.get("request_id") or record["custom_id"],
        source=Source("requests.jsonl", line),
        prompt=_prompt(body),
        arrival_s=arrival_s,
        generated=(TokenIds(token_ids=np.array(output, dtype=np.uint32)) if output else UNKNOWN),
    )


def _prompt(body: dict[str, Any]) -> ChatMessages | RawText:
    if "prompt" in body:
        return RawText(text=body["prompt"])
    messages = body["messages"]
    if "system" in body:  # Anthropic: the server joins the blocks into one system message
        system = "\n".join(block["text"] for block in body["system"])
        messages = [{"role": "system", "content": system}, *messages]
    return ChatMessages(
        messages=messages,
        tools=body.get("tools"),
        chat_template_kwargs=body.get("chat_template_kwargs", {}),
    )
