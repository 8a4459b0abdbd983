"""What is given up half-way leaves nothing behind."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.backend.embedded import EmbeddedServer
from penstock.backend.redis import RedisBackend
from penstock.errors import ConfigurationError


async def test_a_cancelled_connect_gives_the_embedded_server_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[EmbeddedServer] = []
    start = EmbeddedServer.start

    def remembered(*args: object, **options: object) -> EmbeddedServer:
        server = start(*args, **options)  # type: ignore[arg-type]
        started.append(server)
        return server

    monkeypatch.setattr(EmbeddedServer, "start", remembered)
    connecting = asyncio.create_task(RedisBackend.connect(f"embedded://{tmp_path}/data"))
    await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    async with asyncio.timeout(20):
        while not started or started[0].socket_path.exists():
            await asyncio.sleep(0.01)


def test_a_backend_says_so_when_it_is_used_in_another_event_loop() -> None:
    with asyncio.Runner() as first, asyncio.Runner() as second:
        backend = first.run(RedisBackend.connect("embedded://?ephemeral=true"))
        with pytest.raises(ConfigurationError, match="event loop"):
            second.run(backend.create_group("orders", "g"))
        first.run(backend.aclose())


async def test_a_consumer_forgotten_while_its_reader_opens_leaves_no_connection(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path / "data") as server:
        async with await RedisBackend.connect(server.url) as backend:
            await backend.create_group("orders", "g")
            await backend.read_new("orders", "g", "c0", 1, timedelta(0))
            before = _open_sockets()
            for number in range(5):
                wait = timedelta(seconds=30)
                reading = asyncio.create_task(backend.read_new("orders", "g", f"c{number}", 1, wait))
                for _ in range(3):
                    await asyncio.sleep(0)
                await backend.forget_consumer("orders", "g", f"c{number}")
                await asyncio.gather(reading, return_exceptions=True)
            async with asyncio.timeout(10):
                while _open_sockets() > before:
                    await asyncio.sleep(0.01)


def _open_sockets() -> int:
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue  # the listing's own descriptor
    return sum(link.startswith("socket:") for link in links)
