"""A server that was filled to its limit, as a user meets it: workers start again, and the diagnosis tells of it."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from penstock.backend import keys
from tests.support.command_line import CommandLine
from tests.support.forked import Forked
from tests.support.servers import Server, redis_binary, valkey_binary

SHOP = """
from penstock import Penstock

app = Penstock.connect()
orders = app.bus("orders", group="g")

@orders.on(dict)
async def handle(delivery):
    pass
"""
PAYLOAD = '{"text": "' + "x" * 2000 + '"}'


@pytest.fixture(params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    binary = {"valkey": valkey_binary, "redis": redis_binary}[request.param]()
    assert binary is not None
    started = Server(binary, Path(tempfile.mkdtemp(prefix="ps-")), "--appendonly", "yes")
    yield started
    started.stop()
    shutil.rmtree(started.directory)


@pytest.fixture
def admin(server: Server) -> "Iterator[redis.Redis]":
    with server.client() as client:
        yield client


def fill(admin: "redis.Redis") -> None:
    """Publish as other programs do, until it is refused."""
    admin.config_set("maxmemory", admin.info("memory")["used_memory"] + 8_000_000)
    for _ in range(100_000):
        try:
            admin.xadd("orders", {"payload": PAYLOAD})
        except redis.exceptions.OutOfMemoryError:
            return
    pytest.fail("nothing was refused")


def until(holds: Callable[[], object], directory: Path) -> None:
    deadline = time.monotonic() + 40
    while not holds():
        assert time.monotonic() < deadline, (directory / "said").read_text()
        time.sleep(0.02)


def is_settled(admin: "redis.Redis") -> bool:
    groups = {row["name"]: row for row in admin.xinfo_groups("orders")}
    return b"g" in groups and groups[b"g"]["lag"] == groups[b"g"]["pending"] == 0


def work(server: Server, admin: "redis.Redis", directory: Path, *options: str) -> None:
    """`penstock run`, from its start until it has settled all there is; it ends with 0."""
    (directory / "shop.py").write_text(SHOP)
    words = "[" + ", ".join(f'"{word}"' for word in ("run", "shop:app", *options)) + "]"
    place = {"directory": directory, "PENSTOCK_URL": server.url}
    run = Forked("tests.support.command_line", words, directory / "said", **place)  # type: ignore[arg-type]
    try:
        until(lambda: is_settled(admin) or run.poll() is not None, directory)
        assert run.poll() is None, (directory / "said").read_text()
        run.send_signal(signal.SIGTERM)
        assert run.wait(40) == 0
    finally:
        if run.poll() is None:
            os.kill(run.pid, signal.SIGKILL)


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one", "two"])
def test_a_worker_that_starts_at_the_limit_handles_and_settles_what_waits(
    server: Server, admin: "redis.Redis", tmp_path: Path, options: tuple[str, ...]
) -> None:
    admin.xadd("orders", {"payload": PAYLOAD})
    work(server, admin, tmp_path)
    assert admin.exists(keys.retry("orders", "g"))
    fill(admin)
    assert not is_settled(admin)
    work(server, admin, tmp_path, *options)


def test_the_diagnosis_tells_of_the_limit_and_what_it_says_makes_room(
    server: Server, admin: "redis.Redis", tmp_path: Path
) -> None:
    """The server has refused what was larger than the room that is left, and is below its limit."""
    penstock = CommandLine(server.url, tmp_path / "config")
    doctor = ("doctor", "--no-machine", "--skip", "version")
    admin.xadd("orders", {"payload": PAYLOAD})
    work(server, admin, tmp_path)
    penstock(*doctor)
    fill(admin)
    for asking in (doctor, ("why", "orders")):
        # Just before each: what the server gives back of its buffers would be room.
        admin.config_set("maxmemory", admin.info("memory")["used_memory"] + 100_000)
        row = next(row for row in penstock(*asking, code=1).rows if row["rule"] == "memory")
        assert row["level"] == "wrong"
        assert "has hardly any room left, and has refused to store more; settling still works" in row["what"]
        assert "refused for lack of memory" in row["evidence"][1]
        assert " CONFIG SET maxmemory " in row["remedy"]
        assert "penstock topic trim TOPIC --keep 0s --yes" in row["besides"]
    work(server, admin, tmp_path)
    assert admin.xlen("orders") > 1000  # settled, and kept for a day
    penstock("topic", "trim", "orders", "--keep", "0s", "--yes")
    penstock("publish", "orders", PAYLOAD)
    penstock(*doctor)


def test_a_server_that_has_refused_something_and_has_room_now_is_healthy(
    server: Server, admin: "redis.Redis", tmp_path: Path
) -> None:
    penstock = CommandLine(server.url, tmp_path / "config")
    fill(admin)
    assert admin.info("errorstats")["errorstat_OOM"]["count"] == 1
    admin.config_set("maxmemory", 2 * admin.info("memory")["used_memory"])
    assert penstock("doctor", "--no-machine", "--skip", "version").rows == []
