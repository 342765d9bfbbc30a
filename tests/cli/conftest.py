"""The fixture `cli`: the command line, in this process."""

from __future__ import annotations

import pytest

from tests.cli.running import Runner


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Runner:
    for name in ("NO_COLOR", "PREFIXAUDIT_DEBUG", "PREFIXAUDIT_EXPORT_KEY"):
        monkeypatch.delenv(name, raising=False)
    return Runner(capsys)
