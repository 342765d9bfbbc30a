"""Indented JSON of values that hold texts from outside."""

from __future__ import annotations

import json

from prefixaudit.json_text import json_text


def test_undecodable_bytes_of_names_are_escaped_in_keys_and_values() -> None:
    values = {"a\udcff": ("b\udcfe", {"c": None})}

    assert json.loads(json_text(values)) == {"a\\udcff": ["b\\udcfe", {"c": None}]}


def test_what_is_no_number_is_null() -> None:
    assert json.loads(json_text([float("nan"), float("inf"), 0.5])) == [None, None, 0.5]
