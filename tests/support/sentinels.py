"""Real sentinels: each a process of its own that watches a server, and makes a replica the primary if that dies."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis

from tests.support.servers import Server, free_port

_START_SECONDS = 20.0
SERVICE = "main"


class Sentinel:
    """A sentinel on a port of 127.0.0.1; `lines` are more of its configuration."""

    def __init__(self, binary: str, watched: Server | None, *lines: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ps-"))
        self.port = free_port()
        config = [f"port {self.port}", "bind 127.0.0.1", f"dir {self.directory}", f"logfile {self.directory}/log"]
        if watched is not None:
            config += [
                f"sentinel monitor {SERVICE} 127.0.0.1 {watched.port} 1",
                f"sentinel down-after-milliseconds {SERVICE} 600",
                f"sentinel failover-timeout {SERVICE} 5000",
            ]
        file = self.directory / "sentinel.conf"
        file.write_text("\n".join([*config, *lines, ""]))
        self.process = subprocess.Popen([binary, str(file), "--sentinel"], stdout=subprocess.DEVNULL)
        self.until("it answers", lambda: True)

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"redis+sentinel://{self.place}/{SERVICE}"

    def client(self) -> "redis.Redis":
        no_retry = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        return redis.Redis(port=self.port, retry=no_retry, protocol=2, decode_responses=True)

    def watches_a_replica(self) -> bool:
        """One that is in sync, so that it may become the primary."""
        with self.client() as client:
            found = client.sentinel_slaves(SERVICE)
            return any(one["master-link-status"] == "ok" and "disconnected" not in one["flags"] for one in found)

    def names(self, server: Server) -> bool:
        """Whether it takes this one for the primary."""
        with self.client() as client:
            return client.sentinel_get_master_addr_by_name(SERVICE) == ("127.0.0.1", server.port)

    def watch(self, server: Server) -> None:
        """Take this one for the primary from now on, as after a failover."""
        with self.client() as client:
            client.execute_command("SENTINEL REMOVE", SERVICE)
            client.execute_command("SENTINEL MONITOR", SERVICE, "127.0.0.1", server.port, 1)

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                with self.client() as client:
                    client.ping()
                if condition():
                    return
            except redis.AuthenticationError:
                return
            except redis.RedisError:
                assert self.process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < deadline, f"never came: {what}\n{(self.directory / 'log').read_text()}"
            time.sleep(0.01)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        shutil.rmtree(self.directory)


@contextmanager
def sentinel(binary: str, watched: Server | None, *lines: str) -> Iterator[Sentinel]:
    started = Sentinel(binary, watched, *lines)
    try:
        yield started
    finally:
        started.stop()


@contextmanager
def tcp_server(binary: str, *arguments: str) -> Iterator[Server]:
    """One that has a port."""
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    started = Server(binary, directory, *arguments, tcp=True)
    try:
        yield started
    finally:
        started.stop()
        shutil.rmtree(directory)


class Pair:
    """A primary, a replica that is in sync, and the sentinel that watches both."""

    def __init__(self, binary: str, stack: ExitStack) -> None:
        self.primary = stack.enter_context(tcp_server(binary, "--repl-diskless-sync-delay", "0"))
        self.replica = stack.enter_context(tcp_server(binary, "--replicaof", f"127.0.0.1 {self.primary.port}"))
        self.sentinel = stack.enter_context(sentinel(binary, self.primary))
        self.sentinel.until("a replica in sync", self.sentinel.watches_a_replica)


@contextmanager
def watched_pair(binary: str) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(binary, stack)
