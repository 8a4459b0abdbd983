"""Whatever is on a stream: the columns of a page are what `Wire` makes of each entry, in every mode and projection."""

import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, VariantVal

from penstock.errors import MalformedError
from penstock.message.message import Message
from penstock.message.strict_json import encode
from penstock.message.wire import Wire
from penstock.spark.entries.columns import MODES, Columns
from penstock.spark.entries.page import Page
from penstock.spark.options.schemas import default_schema
from tests.spark.ddl import schema
from tests.spark.replies import ENTRY_IDS, Entry, in_buffer, reply

ID = b"0198c0de-5a5a-7abc-8def-0123456789ab"
DEEP = b"[" * 101 + b"]" * 101
PARTS: dict[bytes, Sequence[bytes]] = {
    b"id": [ID, ID.upper(), b"order-7", b"", b"\xff", ID[:-1], ID + b"0", ID.replace(b"-", b"x"), b"x" * 36],
    b"payload": [
        b'{"n":1,"s":"a"}', b"[]", b"null", b'{"n":7,"inner":{"t":"2026-01-31T12:00:00Z"},"list":[1,null]}',
        b' {"n" : 2} ',
        b'{"s":"12:30","n":-9223372036854775808}', b'{"s":"\\ud83d\\ude00","n":null}', '{"s":"é"}'.encode(), b'"text"',
        b'{"a":1,"a":2}', b'{"a":{"b":1,"b":2},"c":":"}', b'{"a":1,"\\u0061":2}', b'[{"x":1},{"x":1,"x":2}]', DEEP,
        b"1e999",
        b"NaN", b'"\\ud800"', b'"\xff"', b"{", b"", b"{} {}", b"\xff\xfe", b'{"n":"one"}', b'{"n":true}',
        b'{"n":1e3,"s":5}',
        b'{"k":"' + b"v" * 300 + b'"}', b'{"n":9223372036854775808}', b"01", b"1 2", b'{"n":1}\n', b"\x00",
    ],
    b"type": [b"Order", b"", b"\xff", "Größe".encode()],
    b"key": [b"k", b"", b"\xfe"],
    b"headers": [
        b"", b"{}", b'{"a":"b"}', b'{"a":"b","a":"c"}', b'{"a":1}', b"[]", b"{", b'{"content-type":"application/json"}',
        b'{"content-type":"application/octet-stream","x":"y"}', b'{"content-type":"text/odd"}', b'{"a":"\\u00e9"}',
        b'{"content-type":"application/cloudevents+json; charset=utf-8"}', b'{"foreign-id":"mine"}', b'{"a":"\xff"}',
    ],
    b"traceparent": [b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", b"", b"\xff"],
    b"tracestate": [b"a=b", b"\xff"],
    b"time": [
        b"2026-01-31T12:00:00Z", b"2026-01-31T12:00:00.000001Z", b"2026-01-31T12:00:00.123Z",
        b"2026-01-31T12:00:00+02:00", b"",
        b"2026-01-31T12:00:00", b"2026-02-30T12:00:00Z", b"0000-01-01T00:00:00Z", b"9999-12-31T23:59:59.999999Z",
        b"\xff",
        b"2026-01-31T24:00:00Z", b"2026-01-31T23:59:60Z", b"2026-01-31T12:00:00Z\n", b"2026-13-01T00:00:00Z", b"noon",
        b"2026-01-31t12:00:00z", b"0001-01-01T00:00:00+02:00", b"0999-01-01T00:00:00Z",
    ],
    b"penstock": [b"1", b"2"],
    b"other": [b"x", b"\xff"],
}  # fmt: skip
LIKELY = [b"id", b"payload", b"id", b"payload", *PARTS]


@st.composite
def pages(draw: st.DrawFn) -> list[Entry]:
    """Entries of a few layouts; most of their values are the first, fine ones."""
    usual = [[b"id", b"payload"], [b"id", b"payload", b"type", b"headers", b"time"], list(PARTS)[:8]]
    layouts = draw(
        st.lists(
            st.sampled_from(usual) | st.lists(st.sampled_from(LIKELY), min_size=1, max_size=9), min_size=1, max_size=3
        )
    )
    entries: list[Entry] = []
    for _ in range(draw(st.integers(1, 6))):
        fields = []
        for name in draw(st.sampled_from(layouts)):
            fields += (name, draw(st.just(PARTS[name][0]) | st.sampled_from(PARTS[name])))
        entries.append((draw(ENTRY_IDS), fields))
    return entries


def columns(
    wanted: StructType, *, layout: str = "envelope", dialect: str = "native", mode: str = "permissive"
) -> Columns:
    made: Columns = pickle.loads(pickle.dumps(Columns.of(wanted, layout=layout, dialect=dialect, mode=mode)))
    return made


def rows(made: Columns, entries: Sequence[Entry], *, one_by_one: bool = False) -> list[dict[str, Any]] | str:
    """What becomes of a page; the error's text if it raises."""
    page = Page(in_buffer(reply(entries)))
    if one_by_one:
        page.shapes, page._entries = None, list(entries)
    try:
        batch = made.batch("orders", page)
    except MalformedError as error:
        return str(error)
    page.reply[:] = 0xFF  # the next page may come: nothing may point here any more
    batch.validate(full=True)
    assert batch.schema.equals(to_arrow_schema(made.schema, timezone="UTC"))
    return batch.to_pylist()


def by_wire(entry: Entry, dialect: str = "native") -> dict[str, Any]:
    """One row of the default schema, without any of the code under test."""
    entry_id, fields = entry[0].decode(), list(entry[1])
    milliseconds = int(entry_id.split("-")[0])
    ts = (
        None
        if milliseconds > 253402300799999
        else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    )
    row = dict.fromkeys(default_schema("envelope").names)
    row |= {"stream": "orders", "entry_id": entry_id, "ts": ts}
    try:
        message = Wire(dialect).unpack("orders", entry_id, fields)
    except MalformedError as error:
        return row | {"_corrupt": error.reason}
    if isinstance(message.body, bytes):
        return row | {"_corrupt": "the payload is bytes, not JSON: ask for the column payload as binary"}
    return row | said_by(message, fields, dialect)


def said_by(message: Message[Any], fields: list[bytes], dialect: str) -> dict[str, Any]:
    parts = {name: getattr(message, name) for name in ("id", "type", "key", "traceparent", "tracestate", "time")}
    payload = fields[fields[::2].index(b"payload") * 2 + 1] if dialect == "native" else encode(message.body)
    return {**parts, "headers": list(message.headers.items()), "payload": payload.decode()}


def in_mode(mode: str, every: list[dict[str, Any]]) -> list[dict[str, Any]] | str:
    bad = [row for row in every if row["_corrupt"] is not None]
    if mode == "failfast" and bad:
        return f"entry {bad[0]['entry_id']} of topic 'orders' is malformed: {bad[0]['_corrupt']}"
    return [row for row in every if row not in bad] if mode == "dropmalformed" else every


@settings(max_examples=500, deadline=None)
@given(pages(), st.sampled_from(MODES))
@example([(b"1-%d" % n, [b"id", ID, b"payload", p]) for n, p in enumerate(PARTS[b"payload"])], "permissive")
@example([(b"1-%d" % n, [b"id", i, b"payload", b"{}"]) for n, i in enumerate(PARTS[b"id"])], "permissive")
@example([(b"1-%d" % n, [b"payload", b"{}", b"headers", h]) for n, h in enumerate(PARTS[b"headers"])], "permissive")
@example([(b"1-%d" % n, [b"payload", b"{}", b"time", t]) for n, t in enumerate(PARTS[b"time"])], "permissive")
def test_every_row_is_what_wire_says(entries: list[Entry], mode: str) -> None:
    expected = in_mode(mode, [by_wire(entry) for entry in entries])
    assert rows(columns(default_schema("envelope"), mode=mode), entries) == expected


PROJECTIONS = [
    "entry_id string", "id string", "headers map<string,string>", "payload string", "payload binary, id string",
    "time timestamp",
    "_corrupt string", "key string, type string, stream string", "tracestate string, ts timestamp, traceparent string",
    "payload struct<n:bigint,s:string,inner:struct<t:timestamp>,list:array<int>>, _corrupt string", "payload variant",
    "payload binary, _corrupt string", "headers map<string,string>, payload string",
]  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(pages(), st.sampled_from(PROJECTIONS), st.sampled_from(MODES))
def test_a_projection_has_the_values_of_the_whole_and_reads_the_same_one_by_one(
    entries: list[Entry], wanted: str, mode: str
) -> None:
    made = columns(schema(wanted), mode=mode)
    seen = rows(made, entries)
    assert seen == rows(made, entries, one_by_one=True)
    fine = [row for row in map(by_wire, entries) if row["_corrupt"] is None]
    if len(fine) == len(entries) and not isinstance(seen, str) and "struct" not in wanted and "variant" not in wanted:
        as_text = [row | {"payload": row["payload"].decode()} if "payload binary" in wanted else row for row in seen]
        assert as_text == [{name: row[name] for name in made.schema.names} for row in fine]


@pytest.mark.parametrize(
    ("entry_id", "name", "moment"),
    [
        (b"1794726255985-7", b"f", datetime(2026, 11, 15, 7, 4, 15, 985000, tzinfo=UTC)),
        (b"1-1", b"-", datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)),  # thirteen bytes behind its start is a dash
        (b"253402300799999-0", b"f", datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
        (b"253402300800000-0", b"f", None),
        (b"18446744073709551615-18446744073709551615", b"f", None),
    ],
)
def test_the_time_of_an_entry_is_in_its_id(entry_id: bytes, name: bytes, moment: datetime | None) -> None:
    assert rows(columns(schema("ts timestamp")), [(entry_id, [name, b"v"])]) == [{"ts": moment}]


@pytest.mark.parametrize(
    ("wanted", "noticed"),
    [
        ("entry_id string, ts timestamp", False), ("id string, type string", False),
        ("headers map<string,string>", False),
        ("payload string", True), ("payload binary", True), ("_corrupt string", True), ("payload variant", True),
    ],
)  # fmt: skip
def test_a_broken_payload_counts_only_where_payload_or_corrupt_is_wanted(wanted: str, noticed: bool) -> None:
    entries = [(b"1-1", [b"id", ID, b"payload", b"{"]), (b"1-2", [b"id", ID, b"payload", b"{}"])]
    kept = rows(columns(schema(wanted), mode="dropmalformed"), entries)
    assert len(kept) == (1 if noticed else 2)
    told = rows(columns(schema(wanted), mode="failfast"), entries)
    assert ("entry 1-1 of topic 'orders' is malformed: not valid JSON" in told) == noticed


@pytest.mark.parametrize("dialect", ["cloudevents", "job", "enveloped", "flat"])
def test_the_other_dialects_read_as_wire_reads_them(dialect: str) -> None:
    said = Message(
        {"n": 1, "s": "a:b"},
        type="Order",
        key="k",
        headers={"h": "x"},
        time=datetime(2026, 1, 31, tzinfo=UTC),
        traceparent="p",
    )
    entries = [
        (b"7-%d" % n, fields)
        for n, fields in enumerate([Wire(dialect).pack(said, "orders"), [b"data", b"{"], [b"a", b"\xff"]])
    ]
    expected = [by_wire(entry, dialect) for entry in entries]
    assert expected[0]["_corrupt"] is None
    assert expected[2]["_corrupt"] is not None
    assert rows(columns(default_schema("envelope"), dialect=dialect), entries) == expected


def test_a_payload_fills_a_struct_as_far_as_it_goes() -> None:
    wanted = schema(
        "payload struct<b:boolean,i:tinyint,d:double,s:string,day:date,at:timestamp,l:array<bigint>,m:map<string,int>,"
        "in:struct<x:int>>, _corrupt string"
    )
    full = {
        "b": True, "i": -128, "d": 1, "s": {"as": "json"}, "day": "2026-01-31", "at": "2026-01-31T12:00:00Z",
        "l": [1, None], "m": {"k": 1}, "in": {"x": 5, "unknown": 0},
    }  # fmt: skip
    bodies = [
        full,
        {},
        {"in": {}},
        {"i": 128},
        {"b": 0},
        {"d": True},
        {"day": "x"},
        {"at": "12:00"},
        {"l": {}},
        [],
        {"in": {"x": "5"}},
    ]
    found = rows(columns(wanted), [(b"1-1", [b"payload", encode(body)]) for body in bodies])
    assert not isinstance(found, str)
    empty = dict.fromkeys(full)
    assert found[0]["payload"] == {
        "b": True, "i": -128, "d": 1.0, "s": '{"as":"json"}', "day": datetime(2026, 1, 31).date(),  # noqa: DTZ001
        "at": datetime(2026, 1, 31, 12, tzinfo=UTC), "l": [1, None], "m": [("k", 1)], "in": {"x": 5},
    }  # fmt: skip
    assert [row["payload"] for row in found[1:3]] == [empty, empty | {"in": {"x": None}}]
    assert [row["payload"] for row in found[3:]] == [None] * 8
    assert [row["_corrupt"] for row in found] == [None] * 3 + [
        "payload.i is out of the range of tinyint",
        "payload.b is not true or false",
        "payload.d is not a number",
        "payload.day is not a date like 2026-01-31",
        "payload.at: the time is not RFC 3339: '12:00'",
        "payload.l is not an array",
        "payload is not an object",
        "payload.in.x is not a whole number",
    ]


def test_an_entry_that_cannot_be_read_is_there_as_it_is_if_that_is_asked_for() -> None:
    good, bad = [b"payload", b"1"], [b"payload", b"{\xff", b"payload", b""]
    found = rows(columns(schema("payload string, _raw array<binary>")), [(b"1-1", good), (b"1-2", bad)])
    assert found == [{"payload": "1", "_raw": None}, {"payload": None, "_raw": bad}]


def test_a_payload_becomes_a_variant() -> None:
    body = {"a": [1, 2.5, None, True, "x"], "b": {"c": -1}}
    found = rows(columns(schema("payload variant")), [(b"1-1", [b"payload", encode(body)])])
    assert VariantVal(found[0]["payload"]["value"], found[0]["payload"]["metadata"]).toPython() == body


def test_bytes_are_a_binary_column_and_nothing_else() -> None:
    entries = [(b"1-1", Wire().pack(Message(b"\x00\xff"))), (b"1-2", Wire().pack(Message(b"17")))]
    assert rows(columns(schema("payload binary")), entries) == [{"payload": b"\x00\xff"}, {"payload": b"17"}]
    assert rows(columns(schema("payload string"), mode="dropmalformed"), entries) == []


FIELDS = st.lists(
    st.tuples(st.sampled_from([b"n", b"d", b"t", b"s", b"b", b"\xff", "ü".encode()]), st.sampled_from(
        [b"1", b"-7", b"9223372036854775808", b"1.5", b"1e400", b"NaN", b"0x1", b"1_0", b" 1", b"true", b"TRUE", b"",
         b"\xff", b"x"]
    )), min_size=1, max_size=4,
).map(lambda pairs: [part for pair in pairs for part in pair])  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(ENTRY_IDS, FIELDS), min_size=1, max_size=6),
    st.sampled_from(MODES),
    st.sampled_from(["raw", "flat"]),
)
def test_fields_read_the_same_together_and_one_by_one(entries: list[Entry], mode: str, layout: str) -> None:
    flat = "s string, entry_id string, n bigint, d double, t boolean, b binary, absent string, _corrupt string"
    made = columns(
        schema(flat if layout == "flat" else "fields map<string,binary>, entry_id string"), layout=layout, mode=mode
    )
    assert str(rows(made, entries)) == str(rows(made, entries, one_by_one=True))  # as text: NaN is not itself


def test_flat_columns_hold_what_their_fields_spell() -> None:
    wanted = schema("s string, n bigint, d double, t boolean, b binary, absent string, _corrupt string")
    fine = [b"s", b"", b"n", b"-9223372036854775808", b"d", b"-1.5e3", b"t", b"true", b"b", b"\xff", b"unknown", b"x"]
    empty = [b"n", b"", b"d", b"", b"t", b"", b"b", b""]
    bad = [[b"n", b"1.0"], [b"d", b"1e999"], [b"t", b"1"], [b"s", b"\xff"], [b"s", b"a", b"s", b"b"]]
    found = rows(columns(wanted, layout="flat"), [(b"1-1", fields) for fields in [fine, empty, *bad]])
    assert not isinstance(found, str)
    nothing = dict.fromkeys(wanted.names)
    assert found[0] == nothing | {"s": "", "n": -(2**63), "d": -1500.0, "t": True, "b": b"\xff"}
    assert found[1] == nothing | {"b": b""}
    assert found[2:] == [
        nothing | {"_corrupt": reason}
        for reason in (
            "field 'n': not a bigint: b'1.0'", "field 'd': not a double: b'1e999'",
            "field 't': neither true nor false: b'1'",
            "field 's': not UTF-8", "field 's' occurs more than once",
        )
    ]  # fmt: skip


def test_raw_fields_are_a_map_of_bytes() -> None:
    entries = [(b"1-1", [b"a", b"\xff", b"b", b""]), (b"1-2", [b"c", b"x"]), (b"1-3", [b"c", b"x", b"c", b"y"])]
    found = rows(columns(schema("entry_id string, fields map<string,binary>, _corrupt string"), layout="raw"), entries)
    assert found == [
        {"entry_id": "1-1", "fields": [("a", b"\xff"), ("b", b"")], "_corrupt": None},
        {"entry_id": "1-2", "fields": [("c", b"x")], "_corrupt": None},
        {"entry_id": "1-3", "fields": None, "_corrupt": "field 'c' occurs more than once"},
    ]


def test_the_arrow_schema_is_known_before_any_page() -> None:
    made = columns(schema("ts timestamp, headers map<string,string>, payload struct<a:int>"))
    assert made.arrow_schema.field("ts").type == pa.timestamp("us", "UTC")
    assert made.arrow_schema == rows_schema(made)


def rows_schema(made: Columns) -> pa.Schema:
    return made.batch("orders", Page(in_buffer(reply([])))).schema
