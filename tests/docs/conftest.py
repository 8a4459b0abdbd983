"""A server and a directory for what the pages and the examples do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import penstock_app, penstock_server, penstock_url
from tests.support.shell import Shell

__all__ = ["penstock_app", "penstock_server", "penstock_url"]


@pytest.fixture
def shell(
    penstock_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shell]:
    """In an empty directory, on an empty server that is $PENSTOCK_URL."""
    monkeypatch.chdir(tmp_path)
    with Shell(tmp_path, capsys, penstock_url) as opened:
        yield opened
