"""Tables of figures within pages, made from `benchmarks/results`.

They stand between `<!-- figures: name -->` and `<!-- end -->`.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/jobs.md", "docs/scaling.md")
PEERS = ("Penstock", "Penstock, batch handler", "FastStream, batch", "FastStream", "taskiq-redis", "streaQ", "dramatiq",
         "pydocket")  # fmt: skip
QUEUES = ("Penstock", "streaQ", "dramatiq", "taskiq-redis", "RQ", "Celery", "arq", "SAQ")
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
        ratio = _ratio(consumed[who], beside)
        latency = f"{middle(waited[who], 'p50'):.2f}" if who in waited else ""
        name = "hiredis, by hand" if who == "raw" else who
        rows.append((name, f"{rate:,.0f}", f"{ratio:.2g}", f"{middle(consumed[who], 'worker_us'):.1f}", latency))
    return _table(("", "messages/s", "of by hand", "CPU µs per message", "latency p50, ms"), rows)


def jobs() -> str:
    """Queues of jobs beside each other."""
    done, waited = results("jobs")["redis"], results("jobs_latency")["redis"]
    rows = [
        (
            who,
            *(f"{middle(done[who], what):,.0f}" for what in ("enqueued", "rate", "worker_us", "bytes")),
            f"{middle(waited[who], 'p50'):.2f}",
        )
        for who in QUEUES
    ]
    return _table(("", "enqueued/s", "done/s", "CPU µs per job", "bytes of a job that waits", "latency p50, ms"), rows)


class Step(NamedTuple):
    """What a message of 200 bytes costs on Valkey, in µs: the process that does something with it, and the server."""

    what: str
    bench: str
    own: float
    server: float
    at_most: bool = False
    """The costs were not measured themselves, and are no more than this."""

    def shown(self, cost: float) -> str:
        return f"at most {cost:.2f}" if self.at_most else f"{cost:.2f}"


def costs() -> str:
    """What one message costs whom."""
    rows = [(step.what, step.bench, step.shown(step.own), step.shown(step.server)) for step in _steps()]
    return _table(("step", "measured by", "CPU µs of the process", "CPU µs of the server"), rows)


def cores() -> str:
    """How many cores that makes at the target."""
    steps = _steps()
    measured = sum(round(step.server, 2) for step in steps if not step.at_most)  # so that rows that are shown add up
    rows = [
        *steps,
        Step("the server: publish and one group", "", measured, 0),
        *(step._replace(what=f"the server: {step.what}", own=step.server) for step in steps if step.at_most),
    ]
    made = []
    for step in rows:
        needed = TARGET * step.own / 1e6
        made.append((step.what, step.shown(step.own), f"{needed:.1f}", str(math.ceil(needed / LOAD))))
    head = ("who", "CPU µs per message", f"cores for {TARGET:,}/s", f"cores at {LOAD:.0%} load")
    return _table(head, made)


def partitions() -> str:
    """Spark's reads, in one task and in two, beside a source as one first writes it."""
    reads = results("spark")["valkey"]["reads"]
    rows = []
    for way in ("count()", "to parquet"):
        rates = [f"{middle(reads[name], 'rate'):,.0f}" for name in (way, f"{way}, in two")]
        times = [f"{_ratio(reads[name], reads[f'{name}, tuples']):.1f}" for name in (way, f"{way}, in two")]
        rows.append((way, *rates, *times))
    return _table(("", "entries/s, one task", "two tasks", "times a plain source, one task", "two tasks"), rows)


def _ratio(ours: "list[dict[str, float]]", theirs: "list[dict[str, float]]") -> float:
    """Median of the ratios of each round."""
    return median(one["rate"] / other["rate"] for one, other in zip(ours, theirs, strict=True))


def memory() -> str:
    """What the server keeps of a message, and what that makes."""
    stored = results("memory")["valkey"]["stored"]
    rows = []
    for way in ("Penstock", "Penstock, publish(once=True)"):
        size = middle(stored[way], "published")
        rows.append((way, f"{size:.0f}", f"{size * TARGET * 60 / 1e9:.0f}", f"{size * TARGET * 3600 / 1e12:.1f}"))
    return _table(("way", "bytes per message", "GB per minute kept", "TB per hour kept"), rows)


def _steps() -> list[Step]:
    published, consumed = results("publish")["valkey"], results("consume")["valkey"]
    archived = results("lake")["valkey"]["archiving 1,000,000 entries"]["archive"]
    drained = results("spark")["valkey"]["reads"]["drain, replies not parsed"]
    many, worker = published["Penstock, publish_many"], consumed["Penstock"]
    return [
        Step("publish_many", "publish", middle(many, "client_us"), middle(many, "server_us")),
        Step("a worker", "consume", middle(worker, "worker_us"), middle(worker, "server_us")),
        # Only rates were measured: two cores had no more to give than this, the server's part included; and one server
        # process, to a connection that takes in the same replies and does nothing else, no more than that.
        Step(
            "the archive, by Spark",
            "lake, spark",
            2e6 / middle(archived, "rate"),
            1e6 / middle(drained, "rate"),
            at_most=True,
        ),
    ]


TABLES: dict[str, Callable[[], str]] = {
    "peers": peers, "jobs": jobs, "costs": costs, "cores": cores, "partitions": partitions, "memory": memory
}  # fmt: skip


def _table(head: "tuple[str, ...]", rows: "list[tuple[str, ...]]") -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
