"""`penstock serve` as a service manager meets it: its address, signals, exit codes."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from penstock.cli.main import main
from penstock.web.server import listen
from tests.support.servers import Server
from tests.support.sse import following, numbers
from tests.support.stage import Stage
from tests.support.tailing import publish

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()", "serve"]
ROOT = Path(__file__).parents[2]
TOKEN = "correct-horse-battery-staple"
SHOP = """
from penstock import Penstock
app = Penstock.connect(prefix="shop:")
"""


@contextmanager
def serving(*arguments: str, cwd: Path = ROOT, **environment: str) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """The process, and the address that it prints."""
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", *arguments], cwd=cwd, env={**os.environ, **environment}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+[0-9]", line)
        if found is None:
            pytest.fail(f"{line!r}, {process.communicate(timeout=20)}")
        yield process, found[0]
    finally:
        process.kill()
        process.communicate(timeout=20)


def refused(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [*COMMAND, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50, check=False
    )
    return done.returncode, done.stderr


def refused_here(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Before anything is loaded or caught, so that it needs no process of its own."""
    with pytest.raises(SystemExit) as left:
        main(["serve", *arguments])
    return int(left.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_streams_whole_and_the_process_with_0(stage: Stage, number: int) -> None:
    with serving("--url", stage.url) as (process, url):
        async with httpx.AsyncClient(base_url=url, timeout=20) as client, following(client, stage.topic) as follower:
            await publish(stage, 1)
            assert numbers(await follower.take(1)) == [1]
            process.send_signal(number)
            assert await follower.rest() == []
        assert process.wait(30) == 0
        output, errors = process.communicate()
    assert (output, errors) == ("Stopped.\n", "")


async def test_an_app_brings_its_prefix_and_needs_no_handlers(stage: Stage) -> None:
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    try:
        (directory / "shop.py").write_text(SHOP)
        with serving("shop:app", cwd=directory, PENSTOCK_URL=stage.url) as (_, url):
            async with httpx.AsyncClient(base_url=url, timeout=20) as client:
                answer = await client.post(f"/topics/{stage.topic}/messages", json={"body": 1})
                assert answer.status_code == 201
    finally:
        shutil.rmtree(directory)
    assert stage.admin.xlen(f"shop:{stage.topic}") == 1


async def test_other_machines_need_a_token_and_may_be_kept_from_writing(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"\n{TOKEN}\n")
    arguments = ["--url", stage.url, "--host", "0.0.0.0", "--token-file", str(file), "--empty-write"]
    with serving(*arguments) as (_, url):
        async with httpx.AsyncClient(base_url=url.replace("0.0.0.0", "127.0.0.1"), timeout=20) as client:
            assert (await client.get(f"/topics/{stage.topic}/events")).status_code == 401
            async with following(client, stage.topic, access_token=TOKEN):
                pass
            with_token = {"Authorization": f"Bearer {TOKEN}"}
            answer = await client.post(f"/topics/{stage.topic}/messages", json={"body": 1}, headers=with_token)
            assert (answer.status_code, stage.admin.exists(stage.topic)) == (403, 0)


@contextmanager
def stuck_client(url: str, topic: str) -> Iterator[None]:
    """It has taken the beginning of the first message, and takes no more."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.socket() as taking:
        taking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        taking.settimeout(20)
        taking.connect((host, int(port)))
        taking.sendall(f"GET /topics/{topic}/events?after=earliest HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        got = b""
        while b"xxx" not in got:
            got += taking.recv(512)
        yield


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) * 1024


def test_clients_that_take_nothing_hold_one_frame_together(stage: Stage) -> None:
    """And none of them the message beside it, as stored and as read: with large ones that would be most of it."""
    size, clients = 1024 * 1000, 12
    for _ in range(5):
        stage.admin.xadd(stage.topic, {"payload": f'"{"x" * size}"'})
    with serving("--url", stage.url) as (process, url), contextlib.ExitStack() as all_of_them:
        all_of_them.enter_context(stuck_client(url, stage.topic))  # what one costs, all need
        before = resident(process.pid)
        for _ in range(clients):
            all_of_them.enter_context(stuck_client(url, stage.topic))
        assert resident(process.pid) - before < clients * size


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_without_a_token_it_listens_to_nobody_else(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = refused_here(capsys, "--url", "redis://127.0.0.1:1", "--host", host)
    assert code == 2
    assert "PENSTOCK_TOKEN" in text


@pytest.mark.parametrize(
    ("code", "words", "arguments"),
    [
        (2, "MODULE:APP", ["shop"]),
        (2, "cannot be read", ["--token-file", "/no/such/file"]),
        (2, "open files", ["--connections", "2000000000"]),
        (2, "65535", ["--port", "99999"]),
        (2, "no name or address", ["--host", "no such host"]),
        (2, "topic to serve", ["--read", "a*b"]),
        (2, "origin is", ["--origin", "*"]),
        (2, "token is at least", []),
    ],
)
def test_what_cannot_work_is_said_in_one_line(
    code: int, words: str, arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "short" if words.startswith("token") else "")
    got, text = refused_here(capsys, "--url", "redis://127.0.0.1:1", *arguments)
    assert (got, text.count("\n")) == (code, 1), text
    assert words in text


def test_what_cannot_start_says_why(server: Server) -> None:
    with contextlib.closing(listen("127.0.0.1", 0)) as taken:
        taken.listen()
        code, text = refused("--url", server.url, "--port", str(taken.getsockname()[1]))
    assert (code, text.count("\n")) == (1, 1), text
    assert "cannot be listened on" in text
    code, text = refused("--url", "redis://127.0.0.1:1", "--port", "0")
    assert (code, text.count("\n")) == (4, 1), text
    assert "127.0.0.1:1" in text
