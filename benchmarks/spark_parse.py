"""Replies to Arrow columns: CPU per entry, beside hiredis whose entries go into the same columns."""

import time
from collections.abc import Callable
from importlib.metadata import version
from uuid import uuid4

import hiredis
import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from benchmarks.load import PAYLOAD_BYTES, payload
from benchmarks.medians import Row, interleaved, median, ratios, spread
from benchmarks.options import Options
from benchmarks.report import Goal, Report
from penstock.message.ids import LOWER_SHAPE, SHAPE
from penstock.message.strict_json import decode, parse
from penstock.spark.entries.columns import Columns
from penstock.spark.entries.fetching import keep_freed_memory
from penstock.spark.entries.page import Page
from penstock.spark.entries.vectors import MICROSECONDS, binary, moments, text

ENTRIES = 5000

MOST_CPU = 0.6
_REPEATS = 20
_PLAIN, _PLAIN_HIREDIS = "offsets to columns", "hiredis to columns"
_CHECKED, _CHECKED_HIREDIS = "offsets to checked columns", "hiredis to checked columns"
_SCHEMA = StructType(
    [
        StructField("entry_id", StringType()),
        StructField("ts", TimestampType()),
        StructField("id", StringType()),
        StructField("payload", StringType()),
    ]
)


def run(options: Options) -> Report:
    report = Report(
        "spark_parse",
        "Spark: replies to Arrow",
        f"One XRANGE reply of {ENTRIES} entries (a UUID and {PAYLOAD_BYTES} bytes of JSON) made into the columns"
        f" entry_id, ts, id and payload: CPU time per entry, best of {_REPEATS} in each round, median of"
        f" {options.rounds} interleaved rounds. Checked columns are what Spark gets: canonical UUIDs, and payloads that"
        " are valid JSON by Penstock's rules; hiredis's are checked by the same rules, entry by entry.",
        versions={name: version(name) for name in ("pyarrow", "numpy")},
    )
    keep_freed_memory()  # as every task does
    reply = bytearray(_reply())
    found = interleaved(options.rounds, list(_WAYS), lambda way: _measured(_WAYS[way], reply))
    for ours, theirs in ((_PLAIN, _PLAIN_HIREDIS), (_CHECKED, _CHECKED_HIREDIS)):
        ratio = median_ratio(found[ours], found[theirs])
        report.goals.append(Goal(f"CPU of {ours} / {theirs}", ratio, most=MOST_CPU))
    report.data = {"ns": found}
    rows = [[way, spread([row["ns"] for row in found[way]], 0), f"{_relative(found, way):.2f}"] for way in _WAYS]
    report.table("CPU per entry", ["", "ns", f"relative to {_PLAIN_HIREDIS}"], rows)
    return report


def median_ratio(rows: list[Row], reference: list[Row]) -> float:
    found = ratios(rows, reference, "ns")
    return found[len(found) // 2]


def _relative(found: dict[str, list[Row]], way: str) -> float:
    return median(found[way], "ns") / median(found[_PLAIN_HIREDIS], "ns")


def _measured(way: Callable[[bytearray], object], reply: bytearray) -> Row:
    best = float("inf")
    for _ in range(_REPEATS):
        started = time.process_time_ns()
        way(reply)
        best = min(best, time.process_time_ns() - started)
    return {"ns": best / ENTRIES}


def _with_offsets(reply: bytearray) -> list[pa.Array]:
    page = Page(np.frombuffer(reply, np.uint8))
    assert page.shapes is not None
    (shape,) = page.shapes
    texts = [text(binary(page.reply, spans))[0] for spans in (shape.ids, *shape.values)]
    return [*texts, moments(page.reply, shape.ids)]


def _with_hiredis(reply: bytearray) -> list[pa.Array]:
    return _columns(_entries(reply))


def _checked_with_hiredis(reply: bytearray) -> list[pa.Array]:
    entries = _entries(reply)
    for _, fields in entries:
        body = fields[3]
        assert fields[1].translate(LOWER_SHAPE) == SHAPE
        value = decode(body)
        if type(value) is not dict or body.count(b":") != len(value):
            parse(body, 100)
    return _columns(entries)


def _entries(reply: bytearray) -> list[list[list[bytes]]]:
    reader = hiredis.Reader()
    reader.feed(reply)
    entries: list[list[list[bytes]]] = reader.gets()
    return entries


def _columns(entries: list[list[list[bytes]]]) -> list[pa.Array]:
    ids = [entry[0] for entry in entries]
    fields = [entry[1] for entry in entries]
    times = pa.array([int(entry_id.partition(b"-")[0]) * 1000 for entry_id in ids], MICROSECONDS)
    lists = (ids, [pairs[1] for pairs in fields], [pairs[3] for pairs in fields])
    return [*(pa.array(values, pa.binary()).cast(pa.string()) for values in lists), times]


_READ = Columns.of(_SCHEMA, layout="envelope", dialect="native", mode="failfast")
_WAYS: dict[str, Callable[[bytearray], object]] = {
    _PLAIN: _with_offsets,
    _PLAIN_HIREDIS: _with_hiredis,
    _CHECKED: lambda reply: _READ.batch("orders", Page(np.frombuffer(reply, np.uint8))),
    _CHECKED_HIREDIS: _checked_with_hiredis,
}


def _reply() -> bytes:
    entries = []
    for number in range(ENTRIES):
        entry_id = b"1794726255%03d-%d" % (number // 7 % 1000, number % 7)
        fields = (b"id", str(uuid4()).encode(), b"payload", msgspec.json.encode(payload(number)))
        packed = b"".join(b"$%d\r\n%b\r\n" % (len(value), value) for value in fields)
        entries.append(b"*2\r\n$%d\r\n%b\r\n*4\r\n%b" % (len(entry_id), entry_id, packed))
    return b"*%d\r\n" % len(entries) + b"".join(entries)
