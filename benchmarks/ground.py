"""The servers that benchmarks run on: each a process of its own, without persistence, ended with the benchmark."""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.servers import Server, redis_binary, valkey_binary

_MOST_LOGGED = 1_000_000
_SETTLE_SECONDS = 10.0


def binaries(wanted: str = "") -> dict[str, str]:
    """The servers this machine has, by name; `wanted` narrows them down to one."""
    found = {"valkey": valkey_binary(), "redis": redis_binary()}
    present = {name: binary for name, binary in found.items() if binary is not None and wanted in ("", name)}
    if not present:
        raise SystemExit(f"no {wanted or 'valkey or redis'} server on this machine")
    return present


class Ground:
    """One server, seen from the outside: a plain client, what its commands cost, and its memory."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.admin = server.client()
        info = self.admin.info("server")
        self.name = f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}"

    @property
    def url(self) -> str:
        """Over TCP, as most deployments and every peer connect."""
        return self.server.tcp_url

    @property
    def pid(self) -> int:
        return self.server.pid

    def empty(self) -> None:
        self.admin.flushall()

    def used_memory(self) -> int:
        """Once it has settled: some servers free what was deleted in the background, and clients' buffers later."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        before = -1
        while True:
            facts = self.admin.info("memory")
            used = int(facts["used_memory"])
            if (used == before and not facts.get("lazyfree_pending_objects")) or time.monotonic() > deadline:
                return used
            before = used
            time.sleep(0.05)

    def watch_commands(self, logs_from_us: int = 0) -> None:
        """Count from here on; every command that takes so long is logged with what it took.

        What a script calls is logged too: where that is much, the script takes twice as long for the log alone.
        """
        self.admin.config_set("slowlog-max-len", _MOST_LOGGED)
        self.admin.config_set("slowlog-log-slower-than", logs_from_us)
        self.admin.slowlog_reset()
        self.admin.config_resetstat()

    def commands(self) -> list[tuple[str, float]]:
        """What ran since `watch_commands`, and the µs each took; a script by its digest, and what it called too."""
        log = self.admin.slowlog_get(_MOST_LOGGED)
        words = [(row["command"].decode(errors="replace").split(" ", 2), row["duration"]) for row in log]
        return [
            (name[1] if name[0].lower() == "evalsha" else name[0].lower(), float(took))
            for name, took in words
            if name[0].lower() not in _ADMIN
        ]

    def commands_cost(self) -> tuple[float, float]:
        """Since `watch_commands`: µs inside the server in all, and of the longest single command.

        The total is that of INFO commandstats. A script's figure holds what it calls, so where there are scripts, only
        they count, and the one command that Penstock sends beside them.
        """
        stats: Counter[str] = Counter()
        for stat, facts in self.admin.info("commandstats").items():
            stats[stat.removeprefix("cmdstat_").split("|")[0]] += facts["usec"]
        longest = max((took for _, took in self.commands()), default=0.0)
        self.admin.config_set("slowlog-log-slower-than", -1)
        counted = _SENT if "evalsha" in stats else stats.keys() - _ADMIN
        return float(sum(stats[name] for name in counted)), longest


_ADMIN = {"config", "slowlog", "info", "flushall", "memory"}
_SENT = {"evalsha", "eval", "xreadgroup"}


@contextmanager
def ground(binary: str, *arguments: str) -> Iterator[Ground]:
    directory = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        server = Server(binary, directory, *arguments, tcp=True)
        try:
            yield Ground(server)
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)


def facts_of(place: Ground) -> dict[str, Any]:
    return {"server": place.name}
