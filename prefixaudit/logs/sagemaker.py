"""SageMaker data capture: JSON lines whose bodies are text, plain or in base64.

    {"captureData": {"endpointInput": {"data": "{\"messages\": …}", "encoding": "JSON", …},
                     "endpointOutput": {"data": …, "encoding": "BASE64", …}},
     "eventMetadata": {"eventId": …, "inferenceTime": "2026-…Z"}, "eventVersion": "0"}

Bodies are those of OpenAI's APIs, or `inputs` with `parameters` as text generation containers take
them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePath
from typing import Any, Final

import orjson

from prefixaudit.core.request import Generated, NotReplayable, RawText, Request, Source
from prefixaudit.core.unknown import UNKNOWN, Known, Unknown
from prefixaudit.logs._chats import NOT_STORED, StoredPrompt, stored_prompt
from prefixaudit.logs._fields import first_text, shared_identity
from prefixaudit.logs._file import LogFile
from prefixaudit.logs._format import LogFormat, ReadItem, Sample
from prefixaudit.logs._json_lines import RecordError, read_json_lines
from prefixaudit.logs._messages_body import messages_rules
from prefixaudit.logs._numbers import loads
from prefixaudit.logs._openai_body import BodyReader, identity_fields, num_samples, reads_cache
from prefixaudit.logs._openai_response import generated_of, response_objects, usage_of
from prefixaudit.logs._options import ReadOptions
from prefixaudit.logs._times import parse_time

_CUT: Final = NotReplayable(
    kind="cut-body", reason="the captured body is not whole JSON: it was cut"
)


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(_is_capture)
    return 0.5 + share / 2 if share else 0.0


def _is_capture(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("captureData"), dict)


def _read(file: LogFile, options: ReadOptions) -> Iterator[ReadItem]:
    reader = BodyReader(rules=messages_rules(options))
    yield from read_json_lines(partial(_parse, reader=reader))(file, options)


def _parse(record: Any, source: Source, reader: BodyReader) -> tuple[Request, ...]:
    if not isinstance(record, dict) or not _is_capture(record):
        raise RecordError("no-prompt", "the record is no data capture")
    capture = record["captureData"]
    about = record.get("eventMetadata")
    about = about if isinstance(about, dict) else {}
    stored = _stored(_data(capture.get("endpointInput")), reader)
    output = _data(capture.get("endpointOutput"))
    answer = response_objects(output.decode("utf-8", errors="replace")) if output else []
    is_single = len(stored.prompts) == 1
    request_id = first_text((about,), ("inferenceId", "eventId"))
    request_id = request_id or f"{PurePath(source.path).name}:{source.line}"
    identity: dict[str, Known[str]] = dict(identity_fields(stored.body)) if stored.body else {}
    return tuple(
        Request(
            request_id=request_id if is_single else f"{request_id}-{place}",
            source=source,
            prompt=prompt,
            arrival_s=parse_time(about.get("inferenceTime")),
            identity=shared_identity(identity),
            usage=usage_of(answer if is_single else []),
            endpoint=stored.endpoint if stored.endpoint is not None else UNKNOWN,
            generated=_generated(answer) if is_single else UNKNOWN,
            num_samples=num_samples(stored.body),
            reads_cache=reads_cache(stored.body, stored.endpoint or ""),
            record={"eventMetadata": about},
        )
        for place, prompt in enumerate(stored.prompts)
    )


def _data(part: Any) -> bytes | None:
    """Return a captured body's bytes; None where there is none.

    Raises RecordError where its base64 is damaged.
    """
    if not isinstance(part, dict) or not isinstance(part.get("data"), str):
        return None
    text: str = part["data"]
    if part.get("encoding") != "BASE64":
        return text.encode("utf-8", errors="surrogatepass")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RecordError("bad-field", "`data` of the capture is no base64") from None


def _stored(data: bytes | None, reader: BodyReader) -> StoredPrompt:
    if not data:
        return StoredPrompt((NOT_STORED,))
    try:
        body = loads(data)
    except orjson.JSONDecodeError:
        return StoredPrompt((_CUT,))
    if isinstance(body, dict) and isinstance(body.get("inputs"), str | list):
        body = {"prompt": body["inputs"]}
    return stored_prompt(body, reader)


def _generated(answer: list[Mapping[str, Any]]) -> Generated | Unknown:
    if len(answer) == 1 and isinstance(answer[0].get("generated_text"), str):
        return RawText(text=answer[0]["generated_text"], add_special_tokens=False)
    return generated_of(answer)


FORMAT = LogFormat(
    title="SageMaker data capture",
    fields=(
        "request_id",
        "arrival_s",
        "endpoint",
        "messages",
        "prompt",
        "usage",
        "generated",
        "model",
    ),
    recognise=_recognise,
    read=_read,
)
