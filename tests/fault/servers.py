"""Servers with a password, that can be killed, emptied, and started again without being waited for."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import redis

from tests.fault.setup import PASSWORD
from tests.fault.state import unparsed
from tests.support.servers import Server, redis_binary, valkey_binary

BINARIES = {"valkey": valkey_binary, "redis": redis_binary}

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
EVERY_SECOND = ("--appendonly", "yes", "--appendfsync", "everysec")


class FaultServer(Server):
    """As `Server`, behind a password, which must never show up anywhere."""

    def __init__(self, binary: str, directory: Path, *arguments: str) -> None:
        super().__init__(binary, directory, "--requirepass", PASSWORD, *arguments)

    @property
    def url(self) -> str:
        return with_password(self.socket)

    def client(self, **options: object) -> "redis.Redis":
        return unparsed(super().client(**{"password": PASSWORD, **options}))

    def start_unwatched(self, *more: str) -> None:
        """Start the process, and return before it answers."""
        arguments: Sequence[str] = (
            "--port", "0", "--unixsocket", str(self.socket), "--save", "", "--dir", str(self.directory),
            "--logfile", str(self.directory / "log"), *self.arguments, *more,
        )  # fmt: skip
        self.process = subprocess.Popen([self.binary, *arguments], stdout=subprocess.DEVNULL)

    def keep_what_it_answered(self) -> None:
        """From now on a kill loses nothing that was answered: every answer waits for its write, not for a sync.

        A server that syncs every second puts its writes off while a sync is under way, and what it answered meanwhile
        dies with its process. That loss is its own; a row that counts losses must not count it.
        """
        with self.client() as admin:
            admin.config_set("appendfsync", "no")
            until = time.monotonic() + 10
            while admin.info("persistence")["aof_pending_bio_fsync"]:
                assert time.monotonic() < until, "the server's disk does not end its sync"
                time.sleep(0.01)

    def version(self) -> str:
        with self.client() as client:
            facts = client.info("server")
        return f"{facts.get('server_name', 'redis')} {facts.get('valkey_version', facts['redis_version'])}"


def with_password(socket: Path) -> str:
    return f"unix://:{PASSWORD}@{socket}"
