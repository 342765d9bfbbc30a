"""What the messages of errors hold."""

from __future__ import annotations

from prefixaudit.errors import unknown_name


def test_known_names_are_listed_unless_they_fill_a_screen() -> None:
    assert unknown_name("engine", "vlm", ["vllm", "sglang"]) == (
        "unknown engine 'vlm'; known: sglang, vllm; did you mean 'vllm'?"
    )
    many = [f"rule-{number:03}" for number in range(300)]
    assert unknown_name("name", "rule-0077", many) == (
        "unknown name 'rule-0077'; 300 are known, see `prefixaudit list`; did you mean 'rule-077'?"
    )
