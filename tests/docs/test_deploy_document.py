"""The page on deploying: its shop runs, and is scraped as the page says."""

import re
import shlex
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.pages import ROOT, blocks_of
from tests.support.servers import free_port
from tests.support.shell import Shell

PAGE = ROOT / "docs" / "howto" / "deploy.md"
PORTS = ("9464", "8000")
LAST = {"9464": 'penstock_handled_total{group="billing",topic="orders"} 1.0', "8000": "penstock_lag_messages{"}
"""What whoever scrapes by hand has to wait for."""


class Scraping(Shell):
    """A shell that has curl."""

    ports: dict[str, str]

    def run(self, line: str) -> str:
        program, *arguments = shlex.split(line, comments=True)
        return self._scraped(arguments[-1]) if program == "curl" else super().run(line)

    def _scraped(self, url: str) -> str:
        (port,) = re.findall(r":(\d+)/", url)
        deadline = time.monotonic() + 30
        while True:
            with urllib.request.urlopen(url) as answer:
                text: str = answer.read().decode()
            if LAST[self.ports[port]] in text:
                return text
            assert time.monotonic() < deadline, text
            time.sleep(0.02)


@pytest.fixture
def shell(
    penstock_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Scraping]:
    monkeypatch.chdir(tmp_path)
    with Scraping(tmp_path, capsys, penstock_url) as opened:
        opened.ports = {str(free_port()): port for port in PORTS}
        yield opened


def test_the_blocks_of_the_page_do_what_it_says(shell: Scraping, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in blocks_of(PAGE):
        text = block.text
        for free, port in shell.ports.items():
            text = text.replace(f":{port}/", f":{free}/").replace(f"--port {port}", f"--port {free}")
            if f"export METRICS_PORT={port}" in text:
                monkeypatch.setenv("METRICS_PORT", free)
        shell.block(replace(block, text=text))
