"""Timelines: the weights and adapters that a request met, and when pools were emptied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prefixaudit.core.identity import Identity
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.deployment.events import Event, read_events, timeline_of
from prefixaudit.errors import ConfigurationError

UPDATES = timeline_of(
    [
        Event(time_s=0.0, kind="start", revision="1", empties_pool=True),
        Event(time_s=10.0, kind="weights", revision="2", empties_pool=False),
        Event(time_s=20.0, kind="weights", revision="3"),
        Event(time_s=30.0, kind="reset", empties_pool=True, empties_stores=True),
    ]
)
NOBODY: list[str] = []


@pytest.mark.parametrize(
    ("arrival_s", "revision"), [(-1.0, UNKNOWN), (0.0, "1"), (9.9, "1"), (10.0, "2"), (99.0, "3")]
)
def test_revision_is_that_of_the_last_update_before(arrival_s: float, revision: object) -> None:
    identity = UPDATES.complete(Identity(model="m"), arrival_s, UNKNOWN)

    assert identity.model_revision == revision


def test_what_the_request_records_wins() -> None:
    identity = UPDATES.complete(Identity(model_revision="mine"), 5.0, UNKNOWN)

    assert identity.model_revision == "mine"


def test_unknown_arrival_adds_nothing() -> None:
    assert UPDATES.complete(Identity(), UNKNOWN, UNKNOWN) == Identity()


def test_event_of_another_server_or_model_is_not_this_ones() -> None:
    timeline = timeline_of(
        [
            Event(time_s=0.0, kind="weights", revision="a", server="s-1"),
            Event(time_s=1.0, kind="weights", revision="b", model="other"),
        ]
    )

    assert timeline.complete(Identity(model="m"), 5.0, "s-1").model_revision == "a"
    assert timeline.complete(Identity(model="m"), 5.0, "s-2").model_revision is UNKNOWN
    assert timeline.complete(Identity(model="other"), 5.0, "s-2").model_revision == "b"


def test_adapter_named_as_the_model_gets_its_load() -> None:
    timeline = timeline_of(
        [Event(time_s=0.0, kind="load-adapter", lora_name="legal", lora_path="/v1", revision="1")]
    )

    identity = timeline.complete(Identity(model="legal"), 1.0, UNKNOWN)

    assert (identity.lora_name, identity.lora_revision, identity.lora_path) == ("legal", "1", "/v1")
    assert identity.model is UNKNOWN


def test_pool_is_emptied_as_events_say_or_the_engine_does() -> None:
    arrival_s = np.array([-5.0, 5.0, 15.0, 25.0, 35.0, np.nan])
    server = np.zeros(6, dtype=np.int32)

    def epochs(*, empties: bool, of_stores: bool = False) -> list[int]:
        numbers = UPDATES.epochs(
            arrival_s, server, ["s"], empties_by_default=[empties], of_stores=of_stores
        )
        return [int(number) for number in numbers]

    assert epochs(empties=False) == [0, 1, 1, 1, 2, 0]
    assert epochs(empties=True) == [0, 1, 1, 2, 3, 0]
    assert epochs(empties=True, of_stores=True) == [0, 0, 0, 0, 1, 0]


def test_events_of_one_server_empty_its_pool_only() -> None:
    timeline = timeline_of([Event(time_s=0.0, kind="reset", server="b", empties_pool=True)])

    epochs = timeline.epochs(
        np.array([1.0, 1.0, 1.0]),
        np.array([0, 1, -1], dtype=np.int32),
        ["a", "b"],
        empties_by_default=[False, False],
    )

    assert epochs.tolist() == [0, 1, 0]


def test_files_are_read_together_with_all_their_problems(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text(
        '{"timestamp": "2026-03-02T08:00:00Z", "event": "serve", "revision": "1"}\n'
        '{"timestamp": "soon", "event": "serve"}\n'
        '{"timestamp": 1, "event": "dance"}\n'
        "{\n"
        '{"timestamp": 1, "event": "load"}\n'
    )

    with pytest.raises(ConfigurationError) as raised:
        read_events([file, tmp_path / "nowhere.jsonl"])

    text = str(raised.value)
    for part in (
        "events.jsonl:2: `timestamp` is missing or no time",
        "events.jsonl:3: `event` is none that is known",
        "events.jsonl:4: is no JSON",
        "events.jsonl:5: `lora_name` is missing",
        "nowhere.jsonl: can't be read",
    ):
        assert part in text


def test_weights_in_any_unit_of_time_and_name(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text(
        '{"ts": 1772438400000, "event": "update_weights", "sha256": "ab", "flush_cache": true}\n'
    )

    (event,) = read_events([file]).events

    assert event.time_s == 1772438400.0
    assert (event.kind, event.revision, event.empties_pool) == ("weights", "ab", True)
