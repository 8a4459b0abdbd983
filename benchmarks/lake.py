"""The lake: what it costs to archive exactly once, to bring messages back, and to have much in it."""

import statistics
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import lake_cases as cases
from benchmarks.ground import Ground, ground
from benchmarks.lake_search import compacted, searching, with_random_ids
from benchmarks.load import PAYLOAD_BYTES
from benchmarks.medians import Row, interleaved, median, ratios, spread
from benchmarks.options import Options
from benchmarks.report import Goal, Report
from benchmarks.spark_cases import PackedXadd, fill, spark_session
from penstock.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENTRIES = 1_000_000
REPLAYED = 1_000_000
STEPS = 10
WARM_UP = 3
PLAIN, ARCHIVE = "plain, files by Spark's own sink", "archive"
PACKED, REPLAY = "raw, packed beforehand", "replay"
WAYS = ("trace", "query")
_SEARCHED = ["trace, ms", "query, ms", "files opened by trace", "by query, of all"]
LEAST_ARCHIVE, LEAST_REPLAY, MOST_GROWTH = 0.6, 0.3, 1.2


def run(options: Options) -> Report:
    report = Report(
        "lake",
        "The lake",
        f"{PAYLOAD_BYTES} bytes of JSON per entry, over TCP on one machine, no persistence; Spark `local[2]`; median of"
        f" {options.rounds} interleaved rounds, the JVM warm. *plain* is a streaming query from the same source, with"
        " the same columns, compression and partitions (`minPartitions=2`), to Spark's own Parquet files; the raw"
        " writer sends XADDs that were packed before the clock started, on one connection. Replays need no JVM."
        " *peak MB* is what Spark's JVM and its Python workers held together, looked at every 50 ms; growth compares"
        " the median of the last three steps with that of the second to fourth. A message is looked for by its UUID,"
        " with `penstock trace` and with `penstock lake query`; *MB read* counts what the machine had in its memory,"
        " and the lake's log.",
        versions={name: version(name) for name in ("pyspark", "pyarrow", "duckdb")},
    )
    name, binary = next(iter(options.servers().items()))
    with (
        ground(binary) as place,
        tempfile.TemporaryDirectory(prefix="bench-lake-") as directory,
        spark_session(Path(directory)) as spark,
    ):
        report.data[name] = {"server": place.name}
        bench = _Bench(report, report.data[name], spark, place, options, Path(directory))
        bench.archiving()
        bench.replaying()
        bench.growing()
    return report


class _Bench:
    """One server, one session, one report."""

    def __init__(
        self,
        report: Report,
        data: dict[str, object],
        spark: "SparkSession",
        place: Ground,
        options: Options,
        directory: Path,
    ) -> None:
        self._report = report
        self._data = data
        self._spark = spark
        self._place = place
        self._options = options
        self._directory = directory

    def archiving(self) -> None:
        entries = self._options.scaled(ENTRIES, 50_000)
        fill(self._place, entries)
        ways: dict[str, Callable[[], Row]] = {
            PLAIN: lambda: cases.plain(self._spark, self._place, self._directory, entries),
            ARCHIVE: lambda: cases.archive(self._spark, self._place, self._directory, entries),
        }
        interleaved(WARM_UP, list(ways), lambda what: ways[what]())
        rows = interleaved(self._options.rounds, list(ways), lambda what: ways[what]())
        self._compare(f"archiving {entries:,} entries", rows, ARCHIVE, PLAIN, LEAST_ARCHIVE)

    def replaying(self) -> None:
        count = self._options.scaled(REPLAYED, 20_000)
        lake = cases.lake_of(self._spark, self._place, self._directory, count)
        packed = PackedXadd(self._place, count)
        ways: dict[str, Callable[[], Row]] = {
            PACKED: packed.measure,
            REPLAY: lambda: cases.replay(lake, self._place, count),
        }
        rows = interleaved(self._options.rounds, list(ways), lambda what: ways[what]())
        self._compare(f"replaying {count:,} messages", rows, REPLAY, PACKED, LEAST_REPLAY)

    def growing(self) -> None:
        """The same number of entries again and again into one lake."""
        entries, lake = self._options.scaled(ENTRIES, 50_000), self._directory / "growing"
        steps = cases.steps(self._spark, self._place, lake, entries, STEPS)
        early, late = steps[1:4], steps[-3:]  # the first makes the lake
        cost = statistics.median(row["rate"] for row in early) / statistics.median(row["rate"] for row in late)
        memory = statistics.median(row["MB"] for row in late) / statistics.median(row["MB"] for row in early)
        self._data["growing"] = steps
        self._goal(f"cost per entry at {STEPS * entries:,} rows, of that at {4 * entries:,} or less", cost)
        self._goal("memory, likewise", memory)
        for way in WAYS:
            opened = steps[-1][f"{way} opened"] / steps[0][f"{way} opened"]
            self._goal(f"files that a {way} opens at {STEPS * entries:,} rows, of those at {entries:,}", opened)
        self._report.table(
            f"{self._place.name}: {entries:,} entries at a time into one lake",
            ["rows in it", "entries/s", "peak MB", *_SEARCHED],
            [_step(entries * (number + 1), row) for number, row in enumerate(steps)],
        )
        self._searching(Lake.open(lake), STEPS * entries, steps[-1])

    def _searching(self, lake: Lake, rows: int, found: Row) -> None:
        """For one message, in a lake where ids rise with time, and where they do not."""
        twin = with_random_ids(lake, self._directory / "random")
        lakes = {
            "UUIDv7, as archived": found,
            "UUIDv4, as archived": searching(twin),
            "UUIDv4, compacted": searching(compacted(twin)),
        }
        self._data["searching"] = lakes
        columns = ["ids", *_SEARCHED, "MB read by trace", "by query"]
        table = [[ids, *_searched(row), *(f"{row[f'{way} MB']:.1f}" for way in WAYS)] for ids, row in lakes.items()]
        self._report.table(f"{self._place.name}: one message of {rows:,}", columns, table)

    def _goal(self, what: str, value: float) -> None:
        self._report.goals.append(Goal(f"{self._place.name}: {what}", value, most=MOST_GROWTH))

    def _compare(self, title: str, rows: dict[str, list[Row]], what: str, reference: str, least: float) -> None:
        found = ratios(rows[what], rows[reference], "rate")
        self._data[title] = rows
        self._report.goals.append(
            Goal(f"{self._place.name}: {what}, of {_short(reference)}", statistics.median(found), least=least)
        )
        table = [
            [way, f"{median(mine, 'rate'):,.0f}", spread(ratios(mine, rows[reference], "rate"))]
            for way, mine in rows.items()
        ]
        columns = ["way", "entries/s", f"of {_short(reference)} (low..high)"]
        self._report.table(f"{self._place.name}: {title}", columns, table)


def _step(rows: int, found: Row) -> list[str]:
    return [f"{rows:,}", f"{found['rate']:,.0f}", f"{found['MB']:,.0f}", *_searched(found)]


def _searched(found: Row) -> list[str]:
    took = [f"{1000 * found[f'{way} s']:,.0f}" for way in WAYS]
    return [*took, f"{found['trace opened']:.1f}", f"{found['query opened']:.1f} of {found['files']:.0f}"]


def _short(name: str) -> str:
    return name.partition(",")[0]
