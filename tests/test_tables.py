"""Reading TOML files: typed fields, and all problems of a file in one error."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefixaudit.errors import ConfigurationError
from prefixaudit.tables import TomlDocument


def test_all_problems_of_a_file_are_reported_at_once_with_their_lines() -> None:
    document = TomlDocument(
        "a.toml",
        'title = 3\nblok_size = 16\n\n[[versions]]\nfrom = "1"\n\n[[versions]]\nsize = -1\n',
    )
    document.root.text("title")
    document.root.integer("block_size", default=16)
    document.root.boolean("active")
    for version in document.root.tables("versions"):
        version.text("from")
        version.integer("size", default=0, minimum=0)

    with pytest.raises(ConfigurationError) as raised:
        document.finish()

    assert raised.value.problems == (
        "a.toml:1: title: is an integer; expected text",
        "a.toml: active: missing; expected true or false",
        "a.toml:7: versions[1].from: missing; expected text",
        "a.toml:8: versions[1].size: is -1; expected 0 or more",
        "a.toml:2: blok_size: unknown key; known: active, block_size, title, versions; "
        "did you mean 'block_size'?",
    )


def test_values_come_back_typed() -> None:
    document = TomlDocument("a.toml", 'a = "x"\nb = 2\nc = 2\nd = true\ne = ["u"]\nf = [1]\n')
    root = document.root

    values = (
        root.text("a"),
        root.integer("b"),
        root.number("c"),
        root.boolean("d"),
        root.texts("e"),
        root.integers("f"),
        root.text("g", default=None),
    )
    document.finish()

    assert values == ("x", 2, 2.0, True, ("u",), (1,), None)
    assert isinstance(values[2], float)


def test_a_boolean_is_not_an_integer() -> None:
    document = TomlDocument("a.toml", "a = true\n")
    document.root.integer("a")

    with pytest.raises(ConfigurationError, match="is true or false; expected an integer"):
        document.finish()


def test_a_choice_outside_the_list_names_the_nearest() -> None:
    document = TomlDocument("a.toml", 'kind = "locl"\n')
    document.root.text("kind", choices=("local", "store"))

    with pytest.raises(ConfigurationError, match="expected one of local, store; did you mean"):
        document.finish()


def test_keys_in_a_multi_line_text_are_not_taken_for_keys() -> None:
    document = TomlDocument("a.toml", 'note = """\nsize = 1\n"""\nsize = "x"\n')
    document.root.text("note")
    document.root.integer("size")

    with pytest.raises(ConfigurationError, match=r"a\.toml:4: size"):
        document.finish()


def test_a_file_that_is_not_toml_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("a = \n", encoding="utf-8")

    with pytest.raises(ConfigurationError, match=r"bad\.toml: not valid TOML.*line 1"):
        TomlDocument.read(path)


def test_a_file_that_is_not_utf8_is_a_configuration_error(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(b"a = '\xff'\n")

    with pytest.raises(ConfigurationError, match="byte 5 is not UTF-8"):
        TomlDocument.read(path)


def test_only_the_text_before_a_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('title = "t"\nnote = "[[example]]"\n\n[[example]]\nnot TOML\n')

    document = TomlDocument.read(path, before="[[example]]")

    assert document.root.data == {"title": "t", "note": "[[example]]"}


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="can't be read"):
        TomlDocument.read(tmp_path / "none.toml")


def test_a_problem_in_an_overlay_has_the_overlays_line() -> None:
    text = '[pool]\nsize = 1\nname = "a"\n\n[[versions]]\nfrom = "2"\n[versions.pool]\nsize = "x"\n'
    document = TomlDocument("a.toml", text)
    overlays = document.root.tables("versions")

    merged = document.overlaid(document.root, overlays, without=("from",))
    pool = merged.table("pool")
    values = (pool.text("name"), pool.integer("size"))
    merged.any_value("versions")
    document.root = merged

    assert values == ("a", 0)
    with pytest.raises(ConfigurationError, match=r"a\.toml:8: pool\.size: is text"):
        document.finish()
