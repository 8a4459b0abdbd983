"""What the page on HTTP says runs: its quick start in a shell, and its web app in Python."""

import os
import re
import select
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from penstock.web import WebOptions
from tests.support.servers import free_port
from tests.support.states import state_home

PAGE = (Path(__file__).parents[2] / "docs" / "web.md").read_text()
COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()"]


@contextmanager
def running(command: list[str], **environment: str) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


def printed(process: "subprocess.Popen[str]", end: str) -> str:
    """What it prints, up to and with the first line that has `end` in it."""
    assert process.stdout is not None
    text = ""
    while end not in text.rpartition("\n")[0]:
        assert select.select([process.stdout], [], [], 40)[0], f"{end!r} never came: {text!r}"
        more = os.read(process.stdout.fileno(), 65536).decode()
        assert more, f"{end!r} never came: {text!r}"
        text += more
    return text.rstrip("\n")


@pytest.mark.needs("curl")
def test_the_quick_start_shows_a_message() -> None:
    first, second = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    serve = first.splitlines()[-1]
    assert serve.startswith("penstock serve ")
    port = str(free_port())
    with (
        state_home() as home,
        running([*COMMAND, *shlex.split(serve.replace("8000", port))[1:]], XDG_STATE_HOME=home) as server,
    ):
        printed(server, f"http://127.0.0.1:{port}. ")
        # Replaced by the last one, so that the signal reaches it.
        post, follow = second.replace("8000", port).splitlines()
        with running(["sh", "-c", f"{post}; echo; exec {follow}"]) as shell:
            text = printed(shell, '"body"')
    (receipt, *_), (*_, id_line, data_line) = text.splitlines(), text.splitlines()
    entry_id = re.fullmatch(r'\{"id":"[0-9a-f-]{36}","entry_id":"([0-9]+-[0-9]+)","duplicate":false\}', receipt)
    assert entry_id is not None, text
    assert re.fullmatch(rf"id: [0-9a-f]{{16}}\.{entry_id[1]}", id_line)
    assert data_line.startswith("data: {")
    assert data_line.endswith('"body":{"order":1}}')


async def test_the_web_app_of_the_page_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "embedded://?ephemeral=true")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    web = names["web"]
    assert isinstance(web, Starlette)
    async with (
        web.router.lifespan_context(web),
        httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://anything.example") as client,
    ):
        assert (await client.get("/live/ready")).status_code == 200
        assert (await client.post("/live/topics/stream:1/messages", json={"body": 1})).status_code == 403


def test_every_option_is_in_the_table() -> None:
    table = PAGE.partition("| `WebOptions` |")[2]
    assert {one.name for one in fields(WebOptions)} == set(re.findall(r"`([a-z_]+)`", table)) - {"*"}
