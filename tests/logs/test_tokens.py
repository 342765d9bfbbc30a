"""The native format of token ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefixaudit.core.identity import IDENTITY_FIELDS
from prefixaudit.core.request import MediaSpan, TokenIds
from prefixaudit.core.unknown import UNKNOWN
from tests.logs.reading import read_records


def test_every_field_is_carried(tmp_path: Path) -> None:
    identity = {name: f"the {name}" for name in IDENTITY_FIELDS}
    record = {
        "request_id": "a", "arrival_s": 1772438400.5, "session_id": "s", "parent_id": "p",
        "endpoint": "/v1/completions", "prompt_token_ids": [0, 4294967295],
        "output_token_ids": [7], "num_prompt_tokens": 2, "num_cached_tokens": 0,
        "num_completion_tokens": 1, "num_samples": 3, "reads_cache": False, **identity,
    }  # fmt: skip
    (request,) = read_records(tmp_path, record).requests

    assert isinstance(request.prompt, TokenIds)
    assert request.prompt.token_ids.tolist() == [0, 4294967295]
    assert request.prompt.token_ids.dtype == "uint32"
    assert not request.prompt.token_ids.flags.writeable
    assert isinstance(request.generated, TokenIds)
    assert request.generated.token_ids.tolist() == [7]
    assert {name: getattr(request.identity, name) for name in IDENTITY_FIELDS} == identity
    assert (request.arrival_s, request.session_id, request.parent_id) == (1772438400.5, "s", "p")
    usage = request.usage
    assert (usage.num_prompt_tokens, usage.num_cached_tokens) == (2, 0)
    assert (request.num_samples, request.reads_cache) == (3, False)


def test_absent_is_unknown_and_null_is_none(tmp_path: Path) -> None:
    absent, null = read_records(
        tmp_path,
        {"prompt_token_ids": [1]},
        {
            "prompt_token_ids": [1], "cache_salt": None, "num_cached_tokens": None,
            "output_token_ids": None, "session_id": None,
        },
    ).requests  # fmt: skip

    assert absent.request_id == "log.jsonl:1"
    assert (absent.identity.cache_salt, null.identity.cache_salt) == (UNKNOWN, None)
    assert (absent.usage.num_cached_tokens, null.usage.num_cached_tokens) == (UNKNOWN, None)
    assert (absent.generated, null.generated) == (UNKNOWN, None)
    assert (absent.session_id, null.session_id) == (UNKNOWN, None)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"prompt_token_ids": [5, -1]}, "`prompt_token_ids` holds -1; token ids are 0 or more"),
        (
            {"prompt_token_ids": [4294967296]},
            "`prompt_token_ids` holds 4294967296; token ids are at most 4294967295",
        ),
        ({"prompt_token_ids": [1.0]}, "`prompt_token_ids` holds a number; token ids are whole"),
        ({"prompt_token_ids": [True]}, "`prompt_token_ids` holds a truth value"),
        ({"prompt_token_ids": "abc"}, "`prompt_token_ids` is text; a list of ids is expected"),
        ({"prompt_token_ids": [1], "cache_salt": 5}, "`cache_salt` is a number; text or null"),
        ({"prompt_token_ids": [1], "num_samples": 0}, "`num_samples` is not a whole number"),
        ({"prompt_token_ids": [1], "reads_cache": 1}, "`reads_cache` is neither true nor false"),
    ],
)
def test_wrong_value_is_named(tmp_path: Path, record: dict[str, Any], reason: str) -> None:
    (skipped,) = read_records(tmp_path, record, log_format="tokens").skipped

    assert skipped.reason.startswith(reason)
    assert str(skipped.source).endswith("log.jsonl:1")


@pytest.mark.parametrize(
    "record",
    [
        {"media": [{"identifier": "5c0d", "offset": 1, "num_tokens": 2}]},
        {"mm": [{"modality": "image", "hash": "5c0d", "offset": 1, "length": 2}]},
    ],
)
def test_media_have_their_digest_and_place(tmp_path: Path, record: dict[str, Any]) -> None:
    (request,) = read_records(tmp_path, {"prompt_token_ids": [1, 9, 9, 2], **record}).requests

    assert isinstance(request.prompt, TokenIds)
    assert request.prompt.media == (MediaSpan(identifier="5c0d", offset=1, num_tokens=2),)


@pytest.mark.parametrize(
    "span",
    [
        {"offset": 0, "num_tokens": 1},
        {"identifier": "a", "offset": 0},
        {"identifier": "a", "offset": -1, "num_tokens": 1},
        {"identifier": "a", "offset": 1, "num_tokens": 1},
    ],
)
def test_media_without_a_digest_or_a_place_in_the_prompt_are_skipped(
    tmp_path: Path, span: dict[str, Any]
) -> None:
    read = read_records(tmp_path, {"prompt_token_ids": [1], "media": [span]})

    assert read.skips == [(1, "bad-field")]
