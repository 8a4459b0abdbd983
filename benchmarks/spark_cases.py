"""The single measurements of the Spark benchmark: each fills, reads or writes once and says how fast."""

import asyncio
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import raw
from benchmarks.ground import Ground
from benchmarks.load import payload
from benchmarks.machine import resident_mb, wait_until_quiet
from benchmarks.medians import Row
from benchmarks.sides.spark_sources import CLOCK, ClockedSource, TuplesSource
from penstock.message.ids import new_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parent.parent
TOPIC = "orders"
COLUMNS = "entry_id string, id string, payload string"
_PAGE = 5000
_WINDOW = 1000


@contextmanager
def spark_session(directory: Path) -> "Iterator[SparkSession]":
    """Two cores, a heap that is there from the start, and sources that its processes can import."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.environ[CLOCK] = str(directory / "clock")
    from penstock.spark import session

    settings = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": "-Xms2g -XX:+AlwaysPreTouch",
                "spark.local.dir": str(directory), "spark.sql.shuffle.partitions": 2}  # fmt: skip
    started = session("penstock benchmark", "local[2]", settings)
    started.dataSource.register(TuplesSource)
    started.dataSource.register(ClockedSource)
    try:
        yield started
    finally:
        started.stop()


def fill(place: Ground, entries: int) -> None:
    place.empty()
    add(place, entries)


def add(place: Ground, entries: int) -> None:
    asyncio.run(raw.publish(place.url, TOPIC, entries, _WINDOW))


class Drain:
    """The same entries as bytes of XRANGE replies that nobody looks at; the pages are known before the clock starts."""

    def __init__(self, place: Ground) -> None:
        self._place = place
        self._requests: list[bytes] = []
        self._sizes: list[int] = []
        self.entries = 0
        after = "-"
        while page := place.admin.xrange(TOPIC, after, "+", count=_PAGE):
            last = page[-1][0]
            self._requests.append(raw.pack("XRANGE", TOPIC, after, last, "COUNT", _PAGE))
            self._sizes.append(_reply_size(page))
            self.entries += len(page)
            after = "(" + last.decode()

    def measure(self) -> Row:
        wait_until_quiet()
        buffer = memoryview(bytearray(1 << 20))
        with socket.create_connection(("127.0.0.1", self._place.server.port)) as connection:
            started = time.perf_counter()
            for request, size in zip(self._requests, self._sizes, strict=True):
                connection.sendall(request)
                left = size
                while left > 0:
                    left -= connection.recv_into(buffer, min(left, len(buffer)))
            return {"rate": self.entries / (time.perf_counter() - started)}


def _reply_size(page: list[tuple[bytes, dict[bytes, bytes]]]) -> int:
    def bulk(value: bytes) -> int:
        return len(value) + len(str(len(value))) + 5

    entries = sum(
        4 + bulk(entry_id) + len(b"*%d\r\n" % (2 * len(fields))) + sum(map(bulk, (*fields, *fields.values())))
        for entry_id, fields in page
    )
    return len(b"*%d\r\n" % len(page)) + entries


def reading(spark: "SparkSession", place: Ground, source: str) -> "DataFrame":
    """By `penstock` or `tuples`; `all` its columns, or `split` in two."""
    name, _, how = source.partition(" ")
    reader = spark.read.format(name).options(url=place.url, topic=TOPIC)
    if how == "split":
        reader = reader.option("minPartitions", 2)
    return (reader.schema(COLUMNS) if name == "penstock" and how != "all" else reader).load()


def timed(entries: int, work: Callable[[], Any]) -> Row:
    wait_until_quiet()
    started = time.perf_counter()
    work()
    return {"rate": entries / (time.perf_counter() - started)}


def to_parquet(frame: "DataFrame", directory: Path) -> None:
    target = Path(tempfile.mkdtemp(dir=directory))
    frame.write.mode("overwrite").parquet(str(target))
    shutil.rmtree(target)


def rows_to_write(spark: "SparkSession", count: int) -> "DataFrame":
    """Cached in the JVM, in two partitions, so that only the sink is measured."""
    rows = [(new_id(), raw.encode(payload(number)).decode()) for number in range(count)]
    frame = spark.createDataFrame(rows, "id string, payload string").repartition(2).cache()
    frame.count()
    return frame


class PackedXadd:
    """What one connection can do: requests made beforehand, two windows under way."""

    def __init__(self, place: Ground, count: int) -> None:
        self._place = place
        self.count = count
        requests = [
            raw.pack("XADD", TOPIC, "*", "id", new_id(), "payload", raw.encode(payload(number)))
            for number in range(count)
        ]
        self._windows = [b"".join(requests[at : at + _WINDOW]) for at in range(0, count, _WINDOW)]

    def measure(self) -> Row:
        self._place.empty()
        wait_until_quiet()
        with socket.create_connection(("127.0.0.1", self._place.server.port)) as connection:
            started = time.perf_counter()
            connection.sendall(self._windows[0])
            for window in (*self._windows[1:], b""):
                connection.sendall(window)
                self._await_replies(connection, _WINDOW if window else self.count - _WINDOW * (len(self._windows) - 1))
            took = time.perf_counter() - started
        assert self._place.admin.xlen(TOPIC) == self.count
        return {"rate": self.count / took}

    def _await_replies(self, connection: socket.socket, replies: int) -> None:
        """An XADD's reply is two lines; what is counted here is their ends."""
        lines = getattr(self, "_left", 0)
        while lines < 2 * replies:
            lines += connection.recv(1 << 16).count(b"\n")
        self._left = lines - 2 * replies


def sinking(frame: "DataFrame", place: Ground, delivery: str, count: int) -> Row:
    place.empty()
    sink = frame.write.format("penstock").mode("append").options(url=place.url, topic=TOPIC, delivery=delivery)
    row = timed(count, sink.save)
    assert place.admin.xlen(TOPIC) == count, f"{delivery} wrote {place.admin.xlen(TOPIC)} of {count}"
    return row


def trigger_shares(spark: "SparkSession", place: Ground, directory: Path, per_trigger: int) -> list[float]:
    """Our part of every batch but the first: latestOffset, partitions and commit, of its whole time."""
    clock, checkpoint = Path(os.environ[CLOCK]), Path(tempfile.mkdtemp(dir=directory))
    clock.unlink(missing_ok=True)
    rows = spark.readStream.format("penstock_clocked").schema(COLUMNS)
    rows = rows.options(url=place.url, topic=TOPIC, maxEntriesPerTrigger=per_trigger, minPartitions=2)
    sink = rows.load().writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [progress["durationMs"]["triggerExecution"] / 1000 for progress in query.recentProgress]
    calls = [json.loads(line) for line in clock.read_text().splitlines()]
    ours = [spent for what, spent in calls if what == "latestOffset"]
    rest = sum(spent for what, spent in calls if what != "latestOffset") / max(len(batches), 1)
    return [(mine + rest) / whole for mine, whole in zip(ours[1:], batches[1:], strict=False)]


def peak_of_workers(spark: "SparkSession", work: Callable[[], Any]) -> float:
    """The most memory that Spark's JVM and its Python workers held together, in MB."""
    jvm: int = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # noqa: SLF001
    peak, over = 0.0, threading.Event()

    def look() -> None:
        nonlocal peak
        while not over.wait(0.05):
            peak = max(peak, sum(_resident(pid) for pid in _family(jvm) if pid == jvm or not _is_same(pid, jvm)))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        work()
    finally:
        over.set()
        watcher.join()
    return peak


def _family(pid: int) -> list[int]:
    found, children = [], [pid]
    while children:
        found.append(children.pop())
        try:
            for task in Path(f"/proc/{found[-1]}/task").iterdir():
                children += map(int, (task / "children").read_text().split())
        except OSError:  # it ended meanwhile
            continue
    return found


def _is_same(pid: int, parent: int) -> bool:
    """A child that has not become another program yet: its memory is its parent's, and would count twice."""
    try:
        return Path(f"/proc/{pid}/exe").readlink() == Path(f"/proc/{parent}/exe").readlink()
    except OSError:  # it ended meanwhile
        return True


def _resident(pid: int) -> float:
    try:
        return resident_mb(pid)
    except OSError:
        return 0.0
