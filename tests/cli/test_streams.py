"""Files are written whole or not at all; colour follows the options and the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefixaudit.cli import streams
from prefixaudit.errors import UsageError


def test_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    path.chmod(0o640)

    streams.write_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]


def test_link_stays_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    link = tmp_path / "link"
    link.symlink_to(target)

    streams.write_file(link, b"new")

    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be written"):
        streams.write_file(tmp_path / "none" / "report.json", b"")


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")

    def fail(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(UsageError):
        streams.write_file(path, b"new")

    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]


def test_colour_option_wins_over_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    assert streams.wants_colour("always", None)
    assert not streams.wants_colour("auto", None)


def test_a_file_gets_no_colour(tmp_path: Path) -> None:
    assert not streams.wants_colour("auto", tmp_path / "report.txt")
