"""Spark: reading a stream and writing one, beside what the server and one raw connection can do."""

import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import spark_cases as cases
from benchmarks.ground import Ground, ground
from benchmarks.load import PAYLOAD_BYTES
from benchmarks.medians import Row, interleaved, median, ratios, spread
from benchmarks.options import Options
from benchmarks.report import Goal, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENTRIES = 1_000_000
ROWS = 1_000_000
PER_TRIGGER = 100_000
WARM_UP = 4  # rounds: so long the JVM compiles what it runs
DELIVERIES = ("at_least_once", "fence", "batch", "uuid")
DRAIN, PACKED = "drain, replies not parsed", "raw, packed beforehand"
READS = {
    "count()": ("penstock", "count"),
    "count(), tuples": ("tuples", "count"),
    "count(), all columns": ("penstock all", "count"),
    "to parquet": ("penstock", "parquet"),
    "to parquet, tuples": ("tuples", "parquet"),
    "count(), in two": ("penstock split", "count"),
    "count(), in two, tuples": ("tuples split", "count"),
    "to parquet, in two": ("penstock split", "parquet"),
    "to parquet, in two, tuples": ("tuples split", "parquet"),
}
_GOALS = {"count()": 0.24, "to parquet": 0.16}
MOST_SHARE = 0.1
MOST_GROWTH = 1.1


def run(options: Options) -> Report:
    report = Report(
        "spark",
        "Spark",
        f"{PAYLOAD_BYTES} bytes of JSON per entry, fields `id` and `payload`, over TCP on one machine, no persistence;"
        f" Spark `local[2]`; median of {options.rounds} interleaved rounds, the JVM warm. Reads give columns"
        f" {cases.COLUMNS.replace(' string', '')} unless said, in one partition, which is the default, or in two"
        " (`minPartitions=2`). *drain* is one connection that takes in the same XRANGE replies and looks at nothing;"
        " *tuples* is a data source as one first writes it, with redis-py and a tuple per entry, which does not count"
        " what it splits; the raw writer sends XADDs that were packed before the clock started, on one connection."
        " Sinks write cached rows from two tasks.",
        versions={name: version(name) for name in ("pyspark", "pyarrow", "numpy")},
    )
    name, binary = next(iter(options.servers().items()))
    with (
        ground(binary) as place,
        tempfile.TemporaryDirectory(prefix="bench-spark-") as directory,
        cases.spark_session(Path(directory)) as spark,
    ):
        report.data[name] = {"server": place.name}
        _reads(report, report.data[name], spark, place, options, Path(directory))
        _sinks(report, report.data[name], spark, place, options)
        _memory(report, report.data[name], spark, place, options)
    return report


def _reads(
    report: Report, data: dict[str, object], spark: "SparkSession", place: Ground, options: Options, directory: Path
) -> None:
    cases.fill(place, options.scaled(ENTRIES, 50_000))
    drain = cases.Drain(place)

    def measure(what: str) -> Row:
        if what == DRAIN:
            return drain.measure()
        source, end = READS[what]
        frame = cases.reading(spark, place, source)
        return cases.timed(drain.entries, frame.count if end == "count" else lambda: cases.to_parquet(frame, directory))

    interleaved(WARM_UP, list(READS), measure)
    rows = interleaved(options.rounds, [DRAIN, *READS], measure)
    shares = cases.trigger_shares(spark, place, directory, max(1, drain.entries * PER_TRIGGER // ENTRIES))
    data |= {"reads": rows, "our share of each trigger": shares}
    report.goals += [
        Goal(f"{place.name}: {what}, of drain", _middle(rows, what, DRAIN), least=least)
        for what, least in _GOALS.items()
    ]
    report.goals += [
        Goal(f"{place.name}: {what}, times the tuples source", _middle(rows, what, f"{what}, tuples"), least=2)
        for what in (*_GOALS, *(f"{what}, in two" for what in _GOALS))
    ]
    most = max(shares, default=0.0)
    report.goals.append(Goal(f"{place.name}: our share of a trigger, at most", most, most=MOST_SHARE))
    report.table(f"{place.name}: reading {drain.entries:,} entries", *_table(rows, DRAIN))


def _sinks(report: Report, data: dict[str, object], spark: "SparkSession", place: Ground, options: Options) -> None:
    count = options.scaled(ROWS, 20_000)
    frame, packed = cases.rows_to_write(spark, count), cases.PackedXadd(place, count)

    def measure(what: str) -> Row:
        return packed.measure() if what == PACKED else cases.sinking(frame, place, what, count)

    interleaved(WARM_UP, list(DELIVERIES), measure)
    rows = interleaved(options.rounds, [PACKED, *DELIVERIES], measure)
    data["sinks"] = rows
    plain = "at_least_once"
    report.goals += [
        Goal(f"{place.name}: {plain}, of {PACKED}", _middle(rows, plain, PACKED), least=0.5),
        Goal(f"{place.name}: fence, of {plain}", _middle(rows, "fence", plain), least=0.8),
        Goal(f"{place.name}: batch, of {plain}", _middle(rows, "batch", plain), least=0.5),
    ]
    report.table(f"{place.name}: writing {count:,} rows", *_table(rows, PACKED))
    frame.unpersist()


def _memory(report: Report, data: dict[str, object], spark: "SparkSession", place: Ground, options: Options) -> None:
    peaks = {}
    for entries in (options.scaled(ENTRIES, 50_000), options.scaled(10 * ENTRIES, 500_000)):
        cases.fill(place, entries)
        frame = cases.reading(spark, place, "penstock")
        peaks[entries] = cases.peak_of_workers(spark, frame.count)
    data["peak MB"] = peaks
    few, many = peaks
    growth = peaks[many] / peaks[few]
    report.goals.append(Goal(f"{place.name}: memory at {many:,} entries, of that at {few:,}", growth, most=MOST_GROWTH))
    report.table(
        f"{place.name}: memory of Spark's processes while it counts", ["entries", "peak MB"],
        [[f"{entries:,}", f"{peak:,.0f}"] for entries, peak in peaks.items()],
    )  # fmt: skip


def _middle(rows: dict[str, list[Row]], what: str, reference: str) -> float:
    found = ratios(rows[what], rows[reference], "rate")
    return found[len(found) // 2]


def _table(rows: dict[str, list[Row]], reference: str) -> tuple[list[str], list[list[str]]]:
    cells = [
        [what, f"{median(mine, 'rate'):,.0f}", spread(ratios(mine, rows[reference], "rate"))]
        for what, mine in rows.items()
    ]
    return ["way", "entries/s", f"of {reference} (low..high)"], cells
