"""A steady trickle of messages to a thousand followers: what a delivered event costs, in the process and the server."""

import statistics
import time

from benchmarks.contestants import Contestant
from benchmarks.ground import Ground, ground
from benchmarks.job import TOPIC
from benchmarks.load import payload
from benchmarks.medians import Row, interleaved, median, ratios, spread
from benchmarks.options import Options
from benchmarks.raw import encode
from benchmarks.report import Goal, Report
from benchmarks.running import Worker, worker
from penstock.message.ids import new_id

FOLLOWERS = 1000
RATE, SECONDS = 10, 10
LEAST_TIMES_CHEAPER = 5.0
_PATIENCE_SECONDS = 120.0

SHARED = Contestant("Penstock, one connection for all", "followers", 0, "shared")
BY_HAND = Contestant("hiredis by hand, a connection each", "followers", 0, "by hand")
REDIS_PY = Contestant("redis-py, a connection each", "followers", 0, "redis-py")
_COLUMNS = ["who", "µs per event (low..high)", "of these in the server", "RSS MB", "connections", "times Penstock's"]


def run(options: Options) -> Report:
    followers = options.scaled(FOLLOWERS, 100)
    report = Report(
        "tail",
        f"{RATE} messages a second to {followers} followers",
        f"CPU of the following process and of the server together, per delivered event, over {SECONDS} s, by TCP on one"
        f" machine, no persistence; median of {options.rounds} interleaved rounds. Penstock gives every message"
        " in order, with proof that nothing is missing; the others do nothing but XREAD. Nobody decodes bodies.",
    )
    for name, binary in options.servers().items():
        with ground(binary, "--maxclients", str(followers + 200)) as place:
            wanted = [SHARED, BY_HAND, REDIS_PY]
            rows = interleaved(options.rounds, wanted, lambda one, at=place: _measure(at, one, followers))  # type: ignore[misc]
            report.data[name] = {"server": place.name, **{one.name: rows[one] for one in wanted}}
            for other in (BY_HAND, REDIS_PY):
                found = statistics.median(ratios(rows[other], rows[SHARED], "us"))
                what = f"{place.name}: {other.name}, CPU per event, times Penstock's"
                report.goals.append(Goal(what, found, least=LEAST_TIMES_CHEAPER))
            report.table(place.name, _COLUMNS, [_cells(one, rows) for one in wanted])
    return report


def _measure(place: Ground, one: Contestant, followers: int) -> Row:
    place.empty()
    _send(place, 0)
    with worker(place, one, followers=followers) as running:
        sent = _wake(place, running, followers)
        before = running.look()
        connections = int(place.admin.info("clients")["connected_clients"])
        begin = time.monotonic()
        for number in range(RATE * SECONDS):
            time.sleep(max(0.0, begin + number / RATE - time.monotonic()))
            _send(place, number)
        running.wait_for(before.count + followers * RATE * SECONDS)
        after = running.look()
        assert after.count == before.count + followers * RATE * SECONDS, "an event came twice"
        events = after.count - before.count
        server = (after.server - before.server) / events * 1e6
        mine = (after.worker - before.worker) / events * 1e6
        facts = {"us": mine + server, "server": server, "rss": running.resident_mb(), "sent": sent}
        return facts | {"connections": connections - 1}


def _wake(place: Ground, running: Worker, followers: int) -> int:
    """Messages until every follower has had the same number of them: all are there, and their code is warm."""
    deadline, sent = time.monotonic() + _PATIENCE_SECONDS, 0
    while True:
        before = running.ticks.count
        _send(place, sent)
        sent += 1
        settled = time.monotonic() + 5
        while running.ticks.count < before + followers and time.monotonic() < settled:
            time.sleep(0.02)
        if running.ticks.count == before + followers:
            time.sleep(0.2)
            if running.ticks.count == before + followers:
                return sent
        if time.monotonic() > deadline:
            raise RuntimeError(f"{running.one.name}: not every follower is given every message")


def _send(place: Ground, number: int) -> None:
    place.admin.xadd(TOPIC, {"id": new_id(), "payload": encode(payload(number))})


def _cells(one: Contestant, rows: dict[Contestant, list[Row]]) -> list[str]:
    mine = rows[one]
    return [
        one.name,
        spread([row["us"] for row in mine], 1),
        f"{median(mine, 'server'):.1f}",
        f"{median(mine, 'rss'):.0f}",
        f"{median(mine, 'connections'):.0f}",
        spread(ratios(mine, rows[SHARED], "us")),
    ]
