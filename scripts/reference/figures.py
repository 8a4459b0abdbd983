"""Tables of figures within pages, made from `benchmarks/results`.

They stand between `<!-- figures: name -->` and `<!-- end -->`.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/scaling.md")
PEERS = ("Penstock", "Penstock, batch handler", "FastStream, batch", "FastStream", "taskiq-redis", "streaQ", "dramatiq",
         "pydocket")  # fmt: skip
TARGET = 1_000_000
"""Messages per second that the guide to scaling reckons with."""

LOAD = 0.6
"""How busy a core should be that has to bear a burst."""

_MARKED = re.compile(r"(<!-- figures: (?P<name>[\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> dict[str, str]:
    """Path within the repository → whole text, with the figures as they are in the results now."""
    return {name: _filled((ROOT / name).read_text(encoding="utf-8")) for name in PAGES}


def _filled(text: str) -> str:
    return _MARKED.sub(lambda found: f"{found[1]}{TABLES[found['name']]()}{found[3]}", text)


def results(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def middle(rounds: "list[dict[str, float]]", what: str) -> float:
    return median(one[what] for one in rounds)


def peers() -> str:
    consumed, waited = results("consume")["redis"], results("latency")["redis"]
    rows = []
    for who in ("raw", *PEERS):
        rate = middle(consumed[who], "rate")
        beside = consumed["raw, again" if who == "Penstock, batch handler" else "raw"]
        ratio = median(one["rate"] / raw["rate"] for one, raw in zip(consumed[who], beside, strict=True))
        latency = f"{middle(waited[who], 'p50'):.2f}" if who in waited else ""
        name = "redis-py's hiredis, by hand" if who == "raw" else who
        rows.append((name, f"{rate:,.0f}", f"{ratio:.2g}", f"{middle(consumed[who], 'worker_us'):.1f}", latency))
    return _table(("", "messages/s", "of by hand", "CPU µs per message", "latency p50, ms"), rows)


def costs() -> str:
    """What one message costs whom."""
    return _table(("step", "measured by", "CPU µs of the process", "CPU µs of the server"), [
        (what, bench, f"{own:.2f}", f"{server:.2f}" if server else "") for what, bench, own, server in _steps()
    ])  # fmt: skip


def cores() -> str:
    """How many cores that makes at the target."""
    steps = _steps()
    rows = [(what, own) for what, _, own, _ in steps]
    rows.append(("the server, publish and one group", sum(server for _, _, _, server in steps)))
    made = [
        (what, f"{cost:.2f}", f"{TARGET * cost / 1e6:.1f}", str(math.ceil(TARGET * cost / 1e6 / LOAD)))
        for what, cost in rows
    ]
    head = ("who", "µs per message", f"cores for {TARGET:,}/s", f"cores at {LOAD:.0%} load")
    return _table(head, made)


def memory() -> str:
    """What the server keeps of a message, and what that makes."""
    stored = results("memory")["valkey"]["stored"]
    rows = []
    for way in ("Penstock", "Penstock, publish(once=True)"):
        size = middle(stored[way], "published")
        rows.append((way, f"{size:.0f}", f"{size * TARGET * 60 / 1e9:.0f}", f"{size * TARGET * 3600 / 1e12:.1f}"))
    return _table(("way", "bytes per message", "GB per minute kept", "TB per hour kept"), rows)


def _steps() -> list[tuple[str, str, float, float]]:
    """Step, benchmark, µs of its own process, µs of the server: for one message of 200 bytes, on Valkey."""
    published, consumed = results("publish")["valkey"], results("consume")["valkey"]
    archived = results("lake")["valkey"]["archiving 1,000,000 entries"]["archive"]
    many, worker = published["Penstock, publish_many"], consumed["Penstock"]
    return [
        ("publish_many", "publish", middle(many, "client_us"), middle(many, "server_us")),
        ("a worker", "consume", middle(worker, "worker_us"), middle(worker, "server_us")),
        # Of two cores, both busy: Spark's own processes are not told apart from each other.
        ("the archive, by Spark", "lake", 2e6 / middle(archived, "rate"), 0.0),
    ]


TABLES: dict[str, Callable[[], str]] = {"peers": peers, "costs": costs, "cores": cores, "memory": memory}


def _table(head: "tuple[str, ...]", rows: "list[tuple[str, ...]]") -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
