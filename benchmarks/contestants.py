"""Who takes part: which process runs it, how much it is given, and when the server has all of it acked."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks import peers
from benchmarks.job import GROUP, TOPIC
from benchmarks.options import Options

Admin = Any
"""A redis-py client."""


def group_is_idle(admin: Admin) -> bool:
    return not admin.xpending(TOPIC, GROUP)["pending"]


def all_groups_are_idle(pattern: str) -> Callable[[Admin], bool]:
    def check(admin: Admin) -> bool:
        streams = [key for key in admin.keys(pattern) if admin.type(key) == b"stream"]
        return not any(group["pending"] for key in streams for group in admin.xinfo_groups(key))

    return check


def lists_are_empty(admin: Admin) -> bool:
    return not admin.llen("dramatiq:default") and not any(map(admin.scard, admin.keys("dramatiq:__acks__*")))


@dataclass(frozen=True)
class Contestant:
    """`side` names a file in `sides`. A contestant with `own_load` publishes its messages itself."""

    name: str
    side: str
    messages: int
    mode: str = "message"
    own_load: bool = False
    uvloop: bool = False
    is_idle: Callable[[Admin], bool] = group_is_idle
    is_peer: bool = False
    environment: str = ""
    """Of a peer that cannot live with the others."""

    @property
    def python(self) -> str | None:
        """The interpreter, if it is not ours."""
        return str(peers.python(self.environment)) if self.is_peer else None


_MANY = 1_000_000  # two or three seconds: in less, the first small reads would weigh as much as the rest
RAW = Contestant("raw", "reference", _MANY)
RAW_AGAIN = Contestant("raw, again", "reference", _MANY)
RAW_BATCH = Contestant("raw, handler per batch", "reference", _MANY, "batch")
BUS = Contestant("Penstock", "bus", _MANY)
BUS_BATCH = Contestant("Penstock, batch handler", "bus", _MANY, "batch")


def _peer(name: str, side: str, messages: int, **more: Any) -> Contestant:
    return Contestant(name, f"{side}_peer", messages, own_load=True, is_peer=True, **more)


FASTSTREAM_BATCH = _peer("FastStream, batch", "faststream", 50_000, mode="batch", uvloop=True)
PEERS = [
    _peer("FastStream", "faststream", 4000, uvloop=True),
    _peer("taskiq-redis", "taskiq", 4000, uvloop=True),
    _peer("streaQ", "streaq", 2000, uvloop=True, is_idle=all_groups_are_idle("streaq:*:queues:*")),
    _peer("dramatiq", "dramatiq", 4000, is_idle=lists_are_empty),
    _peer("pydocket", "docket", 3000, uvloop=True, is_idle=all_groups_are_idle("*bench*stream*")),
]


def present(options: Options, wanted: list[Contestant]) -> list[Contestant]:
    """Those of `wanted` that can run here; says which cannot."""
    if not options.peers or not any(one.is_peer for one in wanted):
        return [one for one in wanted if not one.is_peer]
    if peers.python() is None:
        print(f"peers are not installed in {peers.directory()}: their rows are left out (make bench-peers)", flush=True)
        return [one for one in wanted if not one.is_peer]
    return wanted
