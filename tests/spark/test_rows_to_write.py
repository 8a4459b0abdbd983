"""Rows become the entries that publishing the same messages would make, and bad rows are refused."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from penstock.backend.redis.blocking import parse_reply
from penstock.errors import ConfigurationError, EncodeError
from penstock.message.message import Message
from penstock.message.wire import Wire
from penstock.spark.entries.plain_fields import FlatReader
from penstock.spark.options.sink import DELIVERIES, SinkOptions
from penstock.spark.sink.columns_taken import check_columns, check_values
from penstock.spark.sink.envelopes import packer
from penstock.spark.sink.rows import Rows, windows
from tests.spark.ddl import schema
from tests.spark.sinking import batch_of, uuid

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("type", pa.string()),
        ("key", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("traceparent", pa.string()),
        ("tracestate", pa.string()),
        ("time", pa.timestamp("us", "Europe/Paris")),
        ("payload", pa.string()),
    ]
)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TEXTS = st.none() | ANY_TEXT
NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
BODIES = st.recursive(
    st.none() | st.booleans() | NUMBERS | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
MESSAGES = st.builds(
    Message,
    BODIES,
    id=st.uuids().map(str),
    type=TEXTS,
    key=TEXTS,
    headers=st.dictionaries(
        st.text('abc-\r\n"ü', min_size=1, max_size=6), st.text("x$\r\n*2ä", max_size=8), max_size=3
    ),
    traceparent=TEXTS,
    tracestate=TEXTS,
    time=st.none() | st.datetimes(timezones=st.just(UTC)),
)


def fields_of(rows: Rows) -> list[list[bytes]]:
    """Each row's fields and values as a server would read them."""
    return [
        parse_reply(b"*%d\r\n" % count + entry.as_py()) for count, entry in zip(rows.counts, rows.entries, strict=True)
    ]


def as_row(message: Message[Any]) -> dict[str, Any]:
    row = {name: getattr(message, name) for name in SCHEMA.names if name != "payload"}
    return {**row, "headers": list(message.headers.items()), "payload": json.dumps(message.body)}


def with_absent_texts(message: Message[Any]) -> Message[Any]:
    """Empty texts count as absent on the wire."""
    texts = {name: getattr(message, name) or None for name in ("type", "key", "traceparent", "tracestate")}
    return Message(message.body, id=message.id, headers=message.headers, time=message.time, **texts)


@settings(deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=8))
def test_native_entries_read_back_as_the_messages(messages: list[Message[Any]]) -> None:
    window = pa.RecordBatch.from_pylist([as_row(message) for message in messages], SCHEMA)

    rows = packer("envelope", "native")("t", window)

    read = [Wire().unpack("t", "1-0", fields) for fields in fields_of(rows)]
    assert read == [with_absent_texts(message) for message in messages]
    assert fields_of(rows.slice(1)) == fields_of(rows)[1:]
    assert fields_of(packer("envelope", "native")("t", window.slice(len(window) - 1))) == fields_of(rows)[-1:]


@pytest.mark.parametrize("dialect", ["cloudevents", "enveloped", "flat", "job"])
def test_every_dialect_writes_what_publishing_writes(dialect: str) -> None:
    time = datetime(2026, 1, 31, 12, 0, 0, 1, UTC)
    messages = [
        Message({"n": n, "text": "ü\r\n"}, id=uuid(n), type="order", key="k", time=time, headers={"a": "b"})
        for n in range(3)
    ]
    window = pa.RecordBatch.from_pylist([as_row(message) for message in messages], SCHEMA)

    rows = packer("envelope", dialect)("t", window)

    assert fields_of(rows) == [Wire(dialect).pack(message, "t") for message in messages]


def test_raw_maps_are_written_as_they_are() -> None:
    maps = [[(b"a", b"1"), (b"b\r\n", b"\xff$3\r\n")], [(b"c", b"")], [(b"a", b"2")]]
    window = pa.record_batch({"fields": pa.array(maps, pa.map_(pa.binary(), pa.binary())), "id": ["x", "y", "z"]})

    for start in range(3):
        rows = packer("raw", "native")("t", window.slice(start))
        assert fields_of(rows) == [[part for pair in each for part in pair] for each in maps[start:]]


def test_flat_columns_are_fields_and_nulls_are_none() -> None:
    window = pa.record_batch(
        {
            "stream": ["s", "s"], "entry_id": ["1-0", "2-0"], "name": ["a", None],
            "n": pa.array([1, -2], pa.int64()), "x": [0.5, 1e300], "ok": [True, None], "raw": [b"\x00", b""],
        }
    )  # fmt: skip

    assert fields_of(packer("flat", "native")("t", window)) == [
        [b"name", b"a", b"n", b"1", b"x", b"0.5", b"ok", b"true", b"raw", b"\x00"],
        [b"n", b"-2", b"x", b"1e+300", b"raw", b""],
    ]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_flat_numbers_are_written_as_the_source_reads_them(kind: Any) -> None:
    numbers = [0.0, -0.5, 1e30, 1e-7, math.nan, math.inf, -math.inf, None]
    values = pa.array(numbers, kind)
    reader = FlatReader(schema("x double"))

    rows = fields_of(packer("flat", "native")("t", pa.record_batch({"id": ["i"] * len(numbers), "x": values})))

    read = [reader.row("t", "1-0", fields)["x"] for fields in rows]
    assert str(pa.array(read, pa.float64()).cast(kind)) == str(values)  # as text: NaN is not equal to itself


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("payload", None, "has no payload"),
        ("payload", "{", "could not be read by anybody"),
        ("payload", '{"a":1,"a":2}', "duplicate key"),
        ("payload", "[" * 101 + "]" * 101, "nested deeper"),
        ("payload", json.dumps("x" * 1024 * 1024), "the limit is 1048576"),
        ("id", "no-uuid", "is no UUID"),
        ("key", "x" * 1024 * 1024 + "y", "a row's key has"),
    ],
)
@pytest.mark.parametrize("dialect", ["native", "flat"])
def test_what_no_reader_could_read_is_refused(column: str, value: str | None, problem: str, dialect: str) -> None:
    good = as_row(Message({"n": 1}, id=uuid(1), type="t"))
    window = pa.RecordBatch.from_pylist([good, {**good, column: value}], SCHEMA)

    if dialect == "flat" and column != "id" and problem.startswith(("a row's", "the limit")):
        problem = "the limit is"
    with pytest.raises(EncodeError, match=problem):
        packer("envelope", dialect)("t", window)


BAD_PAYLOADS = [
    b"",
    b" ",
    b"{",
    b'"a',
    b"1 2",
    b"],[",
    b"nul",
    b'"\xff"',
    b"1e999",
    b'{"a":1,"\\u0061":2}',
    b"NaN",
    b"1,2",
]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("bad", BAD_PAYLOADS)
def test_a_bad_payload_is_found_among_good_ones_wherever_it_stands(bad: bytes, place: int) -> None:
    payloads = [b'{"a":[1,2.5e3]}', b' "\xc3\xa9" ', b"null"]
    ids = [uuid(number) for number in range(5)]
    whole = pa.record_batch({"id": pa.array(ids), "payload": pa.array([b"0", *payloads, b"0"], pa.binary())})
    assert len(packer("envelope", "native")("t", whole.slice(1, 3))) == 3

    payloads[place] = bad
    for column in (payloads, [b"0", *payloads, b"0"]):
        shift = (len(column) - 3) // 2
        window = pa.record_batch({"id": pa.array(ids[: len(column)]), "payload": pa.array(column, pa.binary())})
        with pytest.raises(EncodeError, match=uuid(place)):
            packer("envelope", "native")("t", window.slice(shift, 3).set_column(0, "id", pa.array(ids[:3])))


def test_a_payload_that_names_its_kind_need_not_be_json() -> None:
    row = {**as_row(Message(None, id=uuid(1))), "headers": [("content-type", "application/octet-stream")]}
    window = pa.RecordBatch.from_pylist([row], SCHEMA).set_column(7, "payload", pa.array([b"\x00{"]))

    rows = packer("envelope", "native")("t", window)

    assert Wire().unpack("t", "1-0", fields_of(rows)[0]).body == b"\x00{"


def test_ids_are_made_canonical_and_made_up_where_there_are_none() -> None:
    window = batch_of(range(2)).set_column(0, "id", pa.array([uuid(0xABC).upper(), None]))

    first, second = fields_of(packer("envelope", "native")("t", window))

    assert first[1] == uuid(0xABC).encode()
    assert len(second[1]) == 36


def test_a_row_without_any_field_is_refused() -> None:
    with pytest.raises(EncodeError, match="no field at all"):
        packer("flat", "native")("t", pa.record_batch({"a": pa.array(["x", None])}))
    with pytest.raises(EncodeError, match="no field at all"):
        packer("raw", "native")("t", pa.record_batch({"fields": pa.array([[]], pa.map_(pa.binary(), pa.binary()))}))


def test_windows_are_bounded_by_rows_and_by_size() -> None:
    small = batch_of(range(25))
    large = pa.record_batch({"payload": ["x" * 300_000] * 10})

    assert [len(window) for _, window in windows(small, "t", 10)] == [10, 10, 5]
    assert [len(window) for _, window in windows(large, "t", 1000)] == [3, 3, 3, 1]


@pytest.mark.parametrize(
    ("columns", "options", "problem"),
    [
        ("payload string", {"topic": "t"}, "needs a column 'id'.*delivery=batch"),
        ("id string, payload string", {}, "needs a column 'stream'"),
        ("id string", {"topic": "t"}, "needs a column 'payload'"),
        ("id string, payload struct<a:int>", {"topic": "t"}, "'payload' is struct<a:int>, but .* string or binary"),
        ("id string, payload string, n int", {"topic": "t"}, "no use for column 'n'"),
        ("id string, payload string", {"topic": "t", "delivery": "explicit_id"}, "needs a column 'entry_id'"),
        ("id string, payload string", {"topic": "t", "delivery": "fence", "orderedBy": "n"}, "needs a column 'n'"),
        ("id string, payload string", {"topic": "t", "delivery": "fence", "dialect": "job"}, "needs a column 'time'"),
        ("id string, payload string, time date", {"topic": "t"}, "'time' is date"),
        ("id string", {"topic": "t", "layout": "raw"}, "needs a column 'fields'"),
        ("id string, fields map<int,string>", {"topic": "t", "layout": "raw"}, "'fields' is map<int,string>"),
        ("id string, a array<int>", {"topic": "t", "layout": "flat"}, "'a' is array<int>"),
        ("stream string", {"layout": "flat", "delivery": "at_least_once"}, "there are only stream"),
        ("id string, ts string", {"topic": "t", "layout": "flat"}, "not write a column 'ts'.*drop or rename"),
        ("id string, _corrupt string", {"topic": "t", "layout": "flat"}, "not write a column '_corrupt'.*filter"),
        ("id string, entry_id string", {"topic": "t", "layout": "flat"}, "column 'entry_id'.*delivery=explicit_id"),
        ("id string, stream string", {"topic": "t", "layout": "flat"}, "column 'stream'.*no option topic"),
        ("id string, payload string, ts string", {"topic": "t"}, "'ts' is string, but .* takes timestamp"),
    ],
)
def test_columns_that_do_not_fit_are_named(columns: str, options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        check_columns(schema(columns), SinkOptions.parse({"url": "redis://h", **options}))


@pytest.mark.parametrize(
    ("option", "value", "deliveries"),
    [
        ("name", "n", ["fence", "uuid", "explicit_id", "at_least_once"]),
        ("remember", "1h", ["explicit_id", "at_least_once"]),
    ],
)
def test_options_that_would_promise_nothing_are_refused(option: str, value: str, deliveries: list[str]) -> None:
    for delivery in DELIVERIES:
        options = {"url": "redis://h", "delivery": delivery, option: value}
        if delivery not in deliveries:
            SinkOptions.parse(options)
            continue
        with pytest.raises(ConfigurationError, match=f"option {option} is for delivery=batch.*delivery={delivery}"):
            SinkOptions.parse(options)


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ("id string, stream string", {}),
        ("entry_id string, name string", {"topic": "t", "delivery": "explicit_id"}),
        ("ts timestamp, name string", {"topic": "t", "delivery": "fence", "orderedBy": "ts"}),
    ],
)
def test_flat_rows_may_say_where_they_go(columns: str, options: dict[str, str]) -> None:
    check_columns(schema(columns), SinkOptions.parse({"url": "redis://h", "layout": "flat", **options}))


def test_a_row_that_the_source_could_not_read_is_named_with_the_remedy() -> None:
    place = {"stream": ["a", "a"], "entry_id": ["1-0", "2-0"], "id": [uuid(1), None]}
    corrupt = pa.record_batch({**place, "_corrupt": [None, "no payload"]})

    with pytest.raises(EncodeError, match=r"entry 2-0 of 'a' has its column '_corrupt' filled.*no payload.*filter"):
        check_values(corrupt, ["id"])
    with pytest.raises(EncodeError, match=r"entry 2-0 of 'a' has a null in column 'id'.*dropmalformed"):
        check_values(pa.record_batch(place), ["id"])
    check_values(corrupt.slice(0, 1), ["id"])


def test_what_the_source_gives_the_sink_takes() -> None:
    from penstock.spark.options.schemas import default_schema

    check_columns(default_schema("envelope"), SinkOptions.parse({"url": "redis://h"}))
    raw = SinkOptions.parse({"url": "redis://h", "layout": "raw", "delivery": "at_least_once"})
    check_columns(default_schema("raw"), raw)
