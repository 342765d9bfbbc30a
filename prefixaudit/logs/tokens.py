"""The native format: JSON lines of token ids, for whoever can write their log as they please.

One object a line. A field that is absent is not recorded (UNKNOWN), one that is null is known to
be absent; the two are never mixed up.

    prompt_token_ids   list of ids in 0..4294967295, the prompt as the engine saw it (required)
    media              list of {identifier, offset, num_tokens}: the digest of each image, audio or
                       video, and where its placeholder ids stand in the prompt; the names `mm`,
                       `hash` and `length` are taken too
    request_id         text; `FILE:LINE` where absent
    arrival_s          seconds since 1970, or ISO 8601 text; `timestamp` is taken too, in any unit
    session_id         text: requests of one conversation
    parent_id          text: request_id of the request that this one continues
    endpoint           text
    output_token_ids   list of ids: the answer; null where there was none
    num_prompt_tokens, num_cached_tokens, num_completion_tokens
                       what the server reported
    num_samples        answers asked for (`n`), 1 where absent
    reads_cache        false where the request didn't look into the cache (vLLM's prompt_logprobs)
    model, model_revision, dtype, quantization, kv_cache_dtype, kv_scales, lora_name,
    lora_revision, lora_path, prompt_embeds, position_encoding, attention, tenant, trust_domain,
    user, cache_salt, extra_key
                       the identity (see core.identity), text or null

    {"request_id": "a-1", "arrival_s": 1772438400.5, "tenant": "acme", "cache_salt": null,
     "lora_name": null, "prompt_token_ids": [1, 733, 16289, 28793]}

Further fields are kept for the deployment's tenant rule and mean nothing here.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from prefixaudit.core.request import (
    Generated,
    MediaSpan,
    Request,
    Source,
    TokenIds,
    Usage,
)
from prefixaudit.core.unknown import UNKNOWN, Unknown
from prefixaudit.logs._fields import (
    headers_of,
    identity_of,
    known_count,
    known_text,
    shared_identity,
    token_ids,
)
from prefixaudit.logs._format import LogFormat, Sample
from prefixaudit.logs._json_lines import RecordError, read_json_lines
from prefixaudit.logs._times import parse_time


def _recognise(sample: Sample) -> float:
    share = sample.share_of_records(
        lambda record: isinstance(record.get("prompt_token_ids"), list) and "body" not in record
    )
    return 0.5 + share / 2 if share else 0.0


def _parse(record: Any, source: Source) -> tuple[Request, ...]:
    if not isinstance(record, dict) or "prompt_token_ids" not in record:
        raise RecordError("no-prompt", "the record has no `prompt_token_ids`")
    ids = token_ids(record["prompt_token_ids"], "prompt_token_ids")
    prompt = TokenIds(token_ids=ids, media=_media(record, len(ids)))
    generated: Generated | None | Unknown = UNKNOWN
    if "output_token_ids" in record:
        output = record["output_token_ids"]
        generated = (
            None if output is None else TokenIds(token_ids=token_ids(output, "output_token_ids"))
        )
    num_samples = record.get("num_samples", 1)
    if type(num_samples) is not int or num_samples < 1:
        raise RecordError("bad-field", "`num_samples` is not a whole number of 1 or more")
    reads_cache = record.get("reads_cache", True)
    if not isinstance(reads_cache, bool):
        raise RecordError("bad-field", "`reads_cache` is neither true nor false")
    arrival = parse_time(record["arrival_s" if "arrival_s" in record else "timestamp"]) if (
        "arrival_s" in record or "timestamp" in record
    ) else UNKNOWN  # fmt: skip
    request_id = known_text(record, "request_id")
    return (
        Request(
            request_id=request_id
            if isinstance(request_id, str) and request_id
            else f"{PurePath(source.path).name}:{source.line}",
            source=source,
            prompt=prompt,
            arrival_s=arrival,
            identity=shared_identity(identity_of(record)),
            usage=Usage(
                num_prompt_tokens=known_count(record, "num_prompt_tokens"),
                num_cached_tokens=known_count(record, "num_cached_tokens"),
                num_completion_tokens=known_count(record, "num_completion_tokens"),
            ),
            session_id=known_text(record, "session_id"),
            parent_id=known_text(record, "parent_id"),
            endpoint=known_text(record, "endpoint"),
            generated=generated,
            num_samples=num_samples,
            reads_cache=reads_cache,
            headers=headers_of(record.get("headers")),
            record=record,
        ),
    )


def _media(record: dict[str, Any], num_tokens: int) -> tuple[MediaSpan, ...]:
    spans = record.get("media", record.get("mm"))
    if spans is None:
        return ()
    if not isinstance(spans, list) or not all(isinstance(span, dict) for span in spans):
        raise RecordError("bad-field", "`media` is not a list of objects")
    media = []
    for span in spans:
        identifier = span.get("identifier", span.get("hash"))
        offset = span.get("offset")
        length = span.get("num_tokens", span.get("length"))
        if not isinstance(identifier, str):
            raise RecordError("bad-field", "`media` holds a span without an `identifier`")
        if type(offset) is not int or type(length) is not int or offset < 0 or length < 1:
            raise RecordError("bad-field", "`media` holds a span without its place in the prompt")
        if offset + length > num_tokens:
            raise RecordError(
                "bad-field",
                f"`media` holds a span up to token {offset + length}; "
                f"the prompt has {num_tokens} tokens",
            )
        media.append(MediaSpan(identifier=identifier, offset=offset, num_tokens=length))
    return tuple(sorted(media, key=lambda span: span.offset))


FORMAT = LogFormat(
    title="prefixaudit's own JSON lines of token ids",
    fields=(
        "request_id",
        "arrival_s",
        "session_id",
        "parent_id",
        "prompt_token_ids",
        "media",
        "output_token_ids",
        "usage",
        "identity",
    ),
    recognise=_recognise,
    read=read_json_lines(_parse),
)
