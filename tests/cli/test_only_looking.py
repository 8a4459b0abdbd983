"""Every command that only looks, for an account that may not write, and on a replica: it is refused nothing."""

import asyncio
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Template
from typing import NoReturn

import pytest
import redis

from penstock import Cursor, Penstock
from penstock.lake import Lake
from penstock.tail.items import Tailed
from tests.lake.pouring import Row as LakeRow
from tests.lake.pouring import pour
from tests.support.command_line import CommandLine
from tests.support.commands import leaves
from tests.support.pages import ROOT, blocks_of
from tests.support.servers import Server, redis_binary, valkey_binary
from tests.support.stock import NAMES, stock

LOOKING = [
    leaf
    for leaf in leaves().values()
    if leaf.row.asks == "a server" and leaf.row.needs == "nothing" and not (leaf.row.acts or leaf.row.tidies)
]
FURTHER = {
    "cursor ls quiet": 0,
    "topic rm {images}:normal": 5,
    "tail orders --after $message": 0,
    "group reset orders stock --to $message": 5,
    "cursor reset orders reader --to $message": 5,
    "job ls images --status running": 0,
}
"""Other ways to look, and their exit codes."""

every_look = pytest.mark.parametrize(
    ("command", "code"),
    [
        *((" ".join([leaf.name, leaf.row.given]), 5 if leaf.has("--yes") else leaf.row.stocked) for leaf in LOOKING),
        *FURTHER.items(),
    ],
)

(VIEWER,) = [
    line
    for block in blocks_of(ROOT / "docs" / "security.md")
    for line in block.text.splitlines()
    if line.startswith("ACL SETUSER viewer ")
]


@pytest.fixture(scope="module", params=["valkey", "redis"])
def primary(request: pytest.FixtureRequest, missing: "Callable[[str], NoReturn]") -> Iterator[Server]:
    """With something of everything on it, and an account that may only look."""
    binary = valkey_binary() if request.param == "valkey" else redis_binary()
    if binary is None:
        missing(f"{request.param}-server")
    server = Server(binary, Path(tempfile.mkdtemp(prefix="ps-")), tcp=True)
    try:
        with server.client() as client:
            stock(server.url, client)
            client.execute_command(*VIEWER.split())
        asyncio.run(follow_quiet(server.url))
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.directory)


async def follow_quiet(url: str) -> None:
    """The cursor of somebody who follows knows the epoch of the stream."""
    async with (
        Penstock.connect(url) as app,
        app.tail("quiet", after=Cursor("lake", start="earliest", every=1)) as tail,
    ):
        item = await anext(tail)
        assert isinstance(item, Tailed)
        await item.commit()


@pytest.fixture(scope="module")
def replica(primary: Server) -> Iterator[Server]:
    arguments = ("--replicaof", f"127.0.0.1 {primary.port}", "--repl-diskless-sync-delay", "0")
    with primary.client() as client:
        client.config_set("repl-diskless-sync-delay", 0)
    server = Server(primary.binary, Path(tempfile.mkdtemp(prefix="ps-")), *arguments)
    try:
        with primary.client() as client, server.client() as copy:
            deadline = time.monotonic() + 20
            while copy.dbsize() < client.dbsize():
                assert time.monotonic() < deadline
                time.sleep(0.01)
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.directory)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a message in it."""
    made = Lake.create(tmp_path_factory.mktemp("lake") / "lake")
    pour(made, [LakeRow("orders", 1, NAMES["message"])])
    return made.path


Answers = Callable[[str, int, str], None]


@pytest.fixture
def answers(lake: Path, tmp_path: Path) -> Answers:
    """Have a server answer to a command as to who may do everything; what would do more says what it would do."""

    def answered(command: str, code: int, url: str) -> None:
        words = [Template(word).substitute(NAMES, lake=lake) for word in shlex.split(command)]
        done = CommandLine(url, tmp_path / "config")(*words, code=code)
        assert "Traceback" not in done.err

    return answered


@every_look
def test_an_account_that_may_only_look_can_look_at_everything(
    command: str, code: int, primary: Server, answers: Answers
) -> None:
    with primary.client() as admin:
        admin.acl_log_reset()
        answers(command, code, primary.url.replace("unix://", "unix://viewer:secret@"))
        refused = {row["object"] for row in admin.acl_log()} - {"client|setinfo", "client|no-evict", "client|no-touch"}
    assert refused == set()


@every_look
def test_a_replica_can_be_looked_at(command: str, code: int, replica: Server, answers: Answers) -> None:
    with replica.client() as admin:
        admin.config_resetstat()
        answers(command, code, replica.url)
        assert "errorstat_READONLY" not in admin.info("errorstats")


def test_an_account_that_may_only_look_cannot_write(primary: Server) -> None:
    with primary.client(username="viewer", password="secret") as client:
        for command in ("XADD orders * a 1", "DEL orders", "FLUSHALL", "KEYS *", "CONFIG SET maxmemory 1"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command.split())
        with pytest.raises(redis.exceptions.ResponseError, match=r"ACL failure|can't run this command"):
            client.eval("return redis.call('DEL', KEYS[1])", 1, "orders")
