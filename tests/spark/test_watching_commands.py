"""`penstock pipeline metrics` and `alerts` that go on: busy all the time, asked to end, and what they say then.

The commands run in this process, on its session; the signal is a real one.
"""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from penstock.cli.main import main
from penstock.errors import ConfigurationError
from penstock.lake import Lake, tables
from penstock.message.ids import new_id
from penstock.spark.pipelines.alert_rules import Alert
from penstock.spark.pipelines.alerts import Alerts
from penstock.spark.pipelines.metrics import Metrics
from penstock.spark.queries.gate import Gate
from tests.spark.awaiting import until
from tests.spark.test_alerts import HOUR_MS, now_ms
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(180)
KEPT = "spark.sql.streaming.numRecentProgressUpdates"
RULES = """
topics = ["{topic}"]
[[alert]]
name = "late"
after = "order.placed"
expect = "order.shipped"
within = "1h"
"""
LATE = Alert(name="late", after="order.placed", expect="order.shipped", within=timedelta(hours=1))


@pytest.fixture(autouse=True)
def as_before(spark: "SparkSession") -> Iterator[None]:
    """Signals; and Spark remembers only the last batch, as if many more had been."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    spark.conf.set(KEPT, "2")  # of these it keeps one
    yield
    spark.conf.unset(KEPT)
    for number, handler in before.items():
        signal.signal(number, handler)


class Beside(threading.Thread):
    """What happens while a command runs in the main thread: `scene`, and then SIGTERM in the midst of a batch."""

    def __init__(self, lake: Path, name: str, scene: "Callable[[Beside], None]") -> None:
        super().__init__(daemon=True)
        self.checkpoint = Lake(lake).checkpoint(name)
        self.begun: list[int] = []
        """Batches that were let through the gate."""
        self.asked_in = -1
        self.failure: BaseException | None = None
        self._scene = scene

    def numbers(self, what: str) -> set[int]:
        return {int(file.name) for file in self.checkpoint.glob(f"{what}/[0-9]*")}

    def after_the_next_batch(self) -> None:
        """Until a batch that begins now is done."""
        last = max(self.numbers("offsets"), default=-1)
        until(lambda: last + 1 in self.numbers("commits"), within=60)

    def run(self) -> None:
        try:
            until(lambda: bool(self.numbers("commits")), within=60)
            self._scene(self)
            until(lambda: self.begun[-1] not in self.numbers("commits"), within=60)
            self.asked_in = self.begun[-1]
        except BaseException as error:
            self.failure = error
            raise
        finally:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def carry_out(monkeypatch: pytest.MonkeyPatch) -> "Callable[..., None]":
    return partial(_carry_out, monkeypatch)


def _carry_out(
    monkeypatch: pytest.MonkeyPatch, lake: Path, name: str, arguments: list[str], scene: "Callable[[Beside], None]"
) -> None:
    beside, real = Beside(lake, name, scene), Gate.__init__

    def noting(gate: Gate, write: "Callable[[Any, int], None]", stop: threading.Event) -> None:
        def begin(rows: Any, number: int) -> None:
            beside.begun.append(number)
            write(rows, number)

        real(gate, begin, stop)

    monkeypatch.setattr(Gate, "__init__", noting)
    beside.start()
    main(["pipeline", *arguments, "--lake", str(lake), "--every", "0.01s"])
    beside.join(30)
    assert beside.failure is None
    assert beside.asked_in in beside.numbers("commits"), "the batch in progress was cut off"


def add(admin: "redis.Redis", topic: str, id: str = "*", **fields: Any) -> None:
    admin.xadd(topic, {"id": new_id(), "payload": "{}", **fields}, id)


def busy(admin: "redis.Redis", topic: str) -> "Callable[[], None]":
    """Something new is on the topic all the time, so that a batch follows on the other; returns what ends that."""
    ending = threading.Event()

    def work() -> None:
        while not ending.wait(0.02):
            add(admin, topic, type="noise")

    threading.Thread(target=work, daemon=True).start()
    return ending.set


def test_metrics_end_after_the_batch_in_progress_and_have_counted_all_that_was_late(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path,
    capsys: "pytest.CaptureFixture[str]", carry_out: "Callable[..., None]",
) -> None:  # fmt: skip
    other, lake = f"{topic}:other", tmp_path / "lake"
    past = now_ms(admin) - HOUR_MS

    def scene(beside: Beside) -> None:
        with pytest.raises(ConfigurationError, match="'metrics' runs already in"):
            Metrics(lake=lake, topics=[topic], url=server.url).run(spark)
        for number in range(4):
            add(admin, other, f"{past + number}-0")
            beside.after_the_next_batch()

    add(admin, topic, type="first")
    end = busy(admin, topic)
    try:
        words = ["metrics", topic, other, "--url", server.url, "--window", "1s", "--watermark", "1s"]
        carry_out(lake, "metrics", words, scene)
    finally:
        end()
    said = capsys.readouterr().err.splitlines()
    assert said[-1].endswith(" windows; 4 entries were late and stopped; run it again to go on")
    assert sum(int(line.split()[0]) for line in said if "came too late" in line) == 4
    assert Lake.open(lake).staged() == []
    (found,) = tables.query(Lake.open(lake), "SELECT count(*)::INT AS n FROM metrics").to_pylist()
    assert said[-1].startswith(f"Measured {found['n']:,} windows; ")


def test_alerts_end_after_the_batch_in_progress_and_tell_of_silence_too(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path,
    capsys: "pytest.CaptureFixture[str]", carry_out: "Callable[..., None]",
) -> None:  # fmt: skip
    to, lake, rules = f"{topic}:alerts", tmp_path / "lake", tmp_path / "rules.toml"
    rules.write_text(RULES.format(topic=topic))
    now = now_ms(admin)

    def scene(beside: Beside) -> None:
        with pytest.raises(ConfigurationError, match="'alerts' runs already in"):
            Alerts(lake=lake, topics=[topic], rules=[LATE], to=to, url=server.url).run(spark)
        for number in range(3):
            add(admin, topic, f"{now - 2 * HOUR_MS + number}-0", type="order.placed", key=f"o{number}")
            until(lambda: admin.xlen(to) == number + 1, within=60)  # noqa: B023 - called at once
        # Nothing comes any more: that time passes is enough.
        due = now_ms(admin) + 3000
        add(admin, topic, f"{due - HOUR_MS}-0", type="order.placed", key="quiet")
        until(lambda: admin.xlen(to) == 4, within=60)
        assert now_ms(admin) > due, "told before its time"

    add(admin, topic, f"{now - 3 * HOUR_MS}-0", type="first", key="none")
    carry_out(lake, "alerts", ["alerts", str(rules), "--to", to, "--url", server.url], scene)
    assert capsys.readouterr().err.splitlines()[-1] == "4 alerts; stopped, run it again to go on"
    bodies = [json.loads(fields[b"payload"]) for _, fields in admin.xrange(to)]
    assert [body["about"] for body in bodies] == ["o0", "o1", "o2", "quiet"]
    assert Lake.open(lake).staged() == []
