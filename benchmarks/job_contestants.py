"""Who takes part where jobs are measured: queues of other libraries, each in an environment it can live in."""

from typing import Any

from benchmarks import peers
from benchmarks.contestants import Admin, Contestant, all_groups_are_idle, group_is_idle, lists_are_empty
from benchmarks.job import TOPIC
from benchmarks.options import Options
from penstock.backend import keys

_MANY = 300_000
LANES = [keys.lane(TOPIC, name) for name in ("high", "normal", "low")]


def lanes_are_idle(admin: Admin) -> bool:
    return not any(admin.xlen(lane) for lane in LANES)


def keys_are_empty(*names: str) -> Any:
    def check(admin: Admin) -> bool:
        return not any(admin.exists(name) for name in names)

    return check


JOBS = Contestant("Penstock", "jobs", _MANY, "many", own_load=True, is_idle=lanes_are_idle)
CALLERS = Contestant("Penstock, 100 callers", "jobs", 100_000, "callers", own_load=True, is_idle=lanes_are_idle)
EACH = Contestant("Penstock, one by one", "jobs", 20_000, "each", own_load=True, is_idle=lanes_are_idle)


def _peer(name: str, messages: int, is_idle: Any, *, environment: str = "", uvloop: bool = False) -> Contestant:
    side = f"{name.lower().partition('-')[0]}_peer"
    more: dict[str, Any] = {"uvloop": uvloop, "is_idle": is_idle, "environment": environment}
    return Contestant(name, side, messages, own_load=True, is_peer=True, **more)


PEERS = [
    _peer("streaQ", 2000, all_groups_are_idle("streaq:*:queues:*"), uvloop=True),
    _peer("dramatiq", 4000, lists_are_empty),
    _peer("taskiq-redis", 4000, group_is_idle, uvloop=True),
    _peer("RQ", 1500, keys_are_empty(f"rq:queue:{TOPIC}", f"rq:wip:{TOPIC}"), environment="jobs"),
    _peer("Celery", 2500, keys_are_empty("celery", "unacked"), environment="jobs"),
    _peer("arq", 3000, keys_are_empty("arq:queue"), environment="arq", uvloop=True),
    _peer("SAQ", 3000, keys_are_empty(f"saq:{TOPIC}:active", f"saq:{TOPIC}:queued"), environment="saq", uvloop=True),
]


def present(options: Options, ours: list[Contestant]) -> list[Contestant]:
    """Ours, and those of the peers that are installed; says which are not."""
    if not options.peers:
        return ours
    missing = [one for one in PEERS if peers.python(one.environment) is None]
    if missing:
        names = ", ".join(one.name for one in missing)
        print(f"not installed: {names}; their rows are left out (make bench-peers)", flush=True)
    return [*ours, *[one for one in PEERS if one not in missing]]


def versions(wanted: list[Contestant]) -> dict[str, str]:
    return {
        name: number
        for environment in dict.fromkeys(one.environment for one in wanted if one.is_peer)
        for name, number in peers.versions(environment).items()
    }
