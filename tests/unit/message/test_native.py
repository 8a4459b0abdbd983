"""Penstock's own entries: what is on the wire, what may come from strangers, and what is refused, with the reason."""

import json
import tracemalloc
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from penstock.errors import ConfigurationError, EncodeError, MalformedError
from penstock.message import fields as f
from penstock.message.ids import entry_uuid, foreign_id, new_id
from penstock.message.layout import Layouts
from penstock.message.message import Message
from penstock.message.wire import Wire
from penstock.options import Limits

ID = "0198c0de-5a5a-7abc-8def-0123456789ab"
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NOON = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)


def read(*fields: bytes, wire: Wire | None = None) -> Message[Any]:
    return (wire or Wire()).unpack("orders", "5-1", list(fields))


def refusal(*fields: bytes, wire: Wire | None = None) -> str:
    with pytest.raises(MalformedError) as caught:
        read(*fields, wire=wire)
    assert caught.value.raw == fields
    assert (caught.value.topic, caught.value.entry_id) == ("orders", "5-1")
    return caught.value.reason


def test_every_part_has_its_field_and_comes_back() -> None:
    message = Message({"a": 1}, ID, "Placed", "k", {"h": "v"}, PARENT, "x=y", NOON)
    fields = Wire().pack(message)
    assert fields == [
        *(b"id", ID.encode(), b"payload", b'{"a":1}', b"type", b"Placed", b"key", b"k", b"headers", b'{"h":"v"}'),
        *(b"traceparent", PARENT.encode(), b"tracestate", b"x=y", b"time", b"2026-01-31T12:00:00.000001Z"),
    ]
    assert read(*fields) == message


def test_what_is_not_said_is_not_written() -> None:
    assert Wire().pack(Message([1], ID)) == [b"id", ID.encode(), b"payload", b"[1]"]


def test_a_message_makes_its_own_id_and_cannot_be_changed() -> None:
    message = Message(1)
    assert new_id() > message.id
    with pytest.raises(AttributeError):
        message.id = ID  # type: ignore[misc]


def test_a_payload_alone_is_a_message() -> None:
    message = read(b"payload", b'{"content":"hi"}')
    assert message.body == {"content": "hi"}
    assert message.id == entry_uuid("orders", "5-1")
    assert message.headers == {}


def test_a_foreign_id_becomes_a_uuid_and_stays_in_the_headers() -> None:
    message = read(b"id", b"123", b"payload", b"1", b"headers", b'{"h":"v"}')
    assert message.id == foreign_id("orders", b"123")
    assert message.headers == {"h": "v", f.FOREIGN_ID: "123"}
    assert read(b"id", b"\xff1", b"payload", b"1").headers == {f.FOREIGN_ID: "\\xff1"}


def test_an_empty_id_is_no_id_or_all_such_messages_would_be_one() -> None:
    assert read(b"id", b"", b"payload", b"1").id == entry_uuid("orders", "5-1")


def test_an_upper_case_uuid_is_the_same_message() -> None:
    assert read(b"id", ID.upper().encode(), b"payload", b"1").id == ID


def test_fields_in_any_order_and_unknown_ones_are_welcome() -> None:
    fields = (b"x", b"\xff", b"payload", b"1", b"penstock-delivery", b'{"attempt":2}', b"id", ID.encode(), b"y", b"")
    assert read(*fields) == Message(1, ID)


def test_an_empty_optional_field_says_nothing() -> None:
    empty = [
        part for name in (b"type", b"key", b"headers", b"traceparent", b"tracestate", b"time") for part in (name, b"")
    ]
    assert read(b"id", ID.encode(), b"payload", b"1", *empty) == Message(1, ID)


def test_a_time_with_another_offset_is_read_in_utc() -> None:
    assert read(b"payload", b"1", b"time", b"2026-01-31T14:00:00.000001+02:00").time == NOON
    east = NOON.astimezone(timezone(timedelta(hours=5)))
    assert Wire().pack(Message(1, time=east))[-1] == b"2026-01-31T12:00:00.000001Z"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ((), "deleted or trimmed"),
        ((b"payload",), "no value"),
        ((b"payload", b"1", b"id"), "no value"),
        ((b"id", ID.encode()), "no payload"),
        ((b"Payload", b"1"), "no payload"),
        ((b"payload", b""), "not valid JSON"),
        ((b"payload", b"\xff"), "not valid JSON"),
        ((b"payload", b"1", b"payload", b"1"), "'payload' occurs more than once"),
        ((b"id", b"1", b"payload", b"1", b"id", b"1"), "'id' occurs more than once"),
        ((b"payload", b"1", b"penstock", b"2"), "newer version"),
        ((b"payload", b"1", b"penstock", b""), "newer version"),
        ((b"payload", b"1", b"penstock", b"1", b"penstock", b"1"), "'penstock' occurs more than once"),
        ((b"payload", b"1", b"type", b"\xff"), "type is not UTF-8"),
        ((b"payload", b"1", b"key", b"\xff"), "key is not UTF-8"),
        ((b"payload", b"1", b"traceparent", b"\xff"), "traceparent is not UTF-8"),
        ((b"payload", b"1", b"time", b"yesterday"), "RFC 3339"),
        ((b"payload", b"1", b"time", b"1712345678"), "RFC 3339"),
        ((b"payload", b"1", b"time", b"2026-01-31T12:00:00"), "no UTC offset"),
        ((b"payload", b"1", b"time", b"0001-01-01T00:00:00+14:00"), "RFC 3339"),
        ((b"payload", b"1", b"headers", b"[]"), "headers"),
        ((b"payload", b"1", b"headers", b'{"a":1}'), "headers"),
        ((b"payload", b"1", b"headers", b'{"a":null}'), "headers"),
        ((b"payload", b"1", b"headers", b'{"a":"b","a":"b"}'), "duplicate key"),
        ((b"payload", b"1", b"headers", rb'{"a":"b","\u0061":"c"}'), "duplicate key"),
        ((b"payload", b"1", b"headers", b'{"a":' + b"[" * 100_000), "headers"),
        ((b"payload", b"1", b"headers", b'{"a":"\xff"}'), "headers"),
        ((b"payload", b"1", b"headers", b'{"content-type":"text/csv"}'), "unknown content type"),
        ((b"payload", b"{", b"headers", b'{"content-type":"application/json"}'), "not valid JSON"),
    ],
)
def test_what_cannot_be_read_says_why(fields: tuple[bytes, ...], reason: str) -> None:
    assert reason in refusal(*fields)


def test_the_version_is_looked_at_in_every_entry() -> None:
    wire = Wire()
    assert read(b"payload", b"1", b"penstock", b"1", wire=wire).body == 1
    assert "newer version" in refusal(b"payload", b"1", b"penstock", b"9", wire=wire)


def test_an_odd_entry_after_a_good_one_of_the_same_names_is_refused() -> None:
    wire = Wire()
    read(b"payload", b"1", b"x", b"2", wire=wire)
    assert "no value" in refusal(b"payload", b"1", b"x", wire=wire)


@pytest.mark.parametrize(
    "name", [b"id", b"payload", b"type", b"key", b"headers", b"traceparent", b"tracestate", b"time"]
)
def test_every_known_value_has_a_cap(name: bytes) -> None:
    fields = {b"payload": b"1"} | {name: b'"' + b"x" * 63 + b'"'}
    flat = [part for pair in fields.items() for part in pair]
    assert "65 bytes, the limit is 64" in refusal(*flat, wire=Wire(limits=Limits(payload_bytes=64)))


def test_too_many_fields_are_refused() -> None:
    extra = [part for n in range(64) for part in (b"x%d" % n, b"")]
    assert read(b"payload", b"1", *extra[2:]).body == 1
    assert "65 fields, the limit is 64" in refusal(b"payload", b"1", *extra)


def test_changing_field_names_do_not_fill_the_memory() -> None:
    layouts = Layouts([b"payload"], Limits())
    for n in range(2000):
        layouts.of([b"payload", b"1", b"x%d" % n, b""])
    assert len(layouts._known) <= 256


def test_fields_that_are_not_bytes_do_not_crash_a_reader() -> None:
    for fields in (
        ["payload", "1"],
        [b"payload", "1"],
        [b"payload", None],
        [None, None],
        [[], []],
        [b"id", 5, b"payload", b"1"],
    ):
        with suppress(MalformedError):
            Wire().unpack("t", "1-1", fields)  # type: ignore[arg-type]


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "message",
    [
        Message(float("nan")),
        Message({"a": [1.5, float("-inf")]}),
        Message({"a": None, "b": (float("nan"),)}),
        Message("\ud800"),
        Message({"\ud800": 1}),
        Message(CYCLE),
        Message(deep(101)),
        Message(deep(100_000)),
        Message(object()),
        Message({"a": object()}),
        Message({1: "a", "1": "b"}),
        Message({None: 1}),
        Message(10**5000),
        Message(-(10**4299)),
        Message("x" * 2**20),
        Message(b"x" * (2**20 + 1)),
        Message(1, id="123"),
        Message(1, id="{" + ID + "}"),
        Message(1, id=5),  # type: ignore[arg-type]
        Message(1, type=""),
        Message(1, type="\ud800"),
        Message(1, type=5),  # type: ignore[arg-type]
        Message(1, key=""),
        Message(1, key=b"k"),  # type: ignore[arg-type]
        Message(1, key="k" * (2**20 + 1)),
        Message(1, traceparent=""),
        Message(1, tracestate="\ud800"),
        Message(1, headers={"a": 1}),  # type: ignore[dict-item]
        Message(1, headers={1: "a"}),  # type: ignore[dict-item]
        Message(1, headers={"a": "\ud800"}),
        Message(1, headers={"a": "x" * 2**20}),
        Message(1, headers=None),  # type: ignore[arg-type]
        Message(1, headers={"content-type": "text/csv"}),
        Message(1, headers={"content-type": "application/octet-stream"}),
        Message(b"1", headers={"content-type": "application/json"}),
        Message(1, time=datetime(2026, 1, 1)),  # noqa: DTZ001
        Message(1, time="2026-01-01T00:00:00Z"),  # type: ignore[arg-type]
        "not a message",
    ],
    ids=lambda message: repr(message)[:40] if not isinstance(message, Message) else None,
)
def test_what_cannot_be_written_ends_as_an_encode_error(message: Any) -> None:
    with pytest.raises(EncodeError):
        Wire().pack(message)


def test_a_body_at_the_limits_is_written_and_read() -> None:
    for body in (deep(100), "x" * (2**20 - 2), 10**4300 - 1, -(10**4298)):
        assert read(*Wire().pack(Message(body))).body == body


def test_a_body_of_bytes_is_bytes_again_whatever_they_are() -> None:
    for body in (b"", b"\x00\xff", b"{", bytearray(b"x"), memoryview(b"y")):
        fields = Wire().pack(Message(body, ID))
        assert json.loads(fields[-1]) == {"content-type": "application/octet-stream"}
        assert read(*fields) == Message(bytes(body), ID)


def test_json_may_say_that_it_is_json() -> None:
    for content_type in ("application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"):
        headers = json.dumps({"content-type": content_type}).encode()
        assert read(b"payload", b"[1]", b"headers", headers).body == [1]


def test_a_codec_of_ones_own_serves_its_content_type() -> None:
    class Csv:
        content_type = "text/csv"

        def encode(self, body: Any) -> bytes:
            return ",".join(body).encode()

        def decode(self, payload: bytes, type: Any | None) -> Any:
            return payload.decode().split(",")

    wire = Wire(codecs=[Csv()])
    message = Message(["a", "b"], headers={"content-type": "text/csv"})
    assert read(*wire.pack(message), wire=wire) == message
    assert "UnicodeDecodeError" in refusal(b"payload", b"\xff", b"headers", b'{"content-type":"text/csv"}', wire=wire)


def test_an_unknown_dialect_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="choose one of cloudevents, enveloped, flat, job, native"):
        Wire("esperanto")


def test_running_out_of_memory_is_not_blamed_on_the_message() -> None:
    def exhausted(*_: Any) -> Any:
        raise MemoryError

    wire = Wire(lambda _: type("Exhausted", (), {"pack": exhausted, "unpack": exhausted})())
    with pytest.raises(MemoryError):
        wire.unpack("t", "1-1", [])
    with pytest.raises(MemoryError):
        wire.pack(Message(1))


def test_a_message_with_more_fields_than_may_be_read_is_not_written() -> None:
    wire = Wire(limits=Limits(fields=3))
    assert len(wire.pack(Message(1, key="k"))) == 6
    with pytest.raises(EncodeError, match="4 fields, the limit is 3"):
        wire.pack(Message(1, key="k", traceparent="t"))


def test_long_field_names_are_not_remembered() -> None:
    wire = Wire()
    tracemalloc.start()
    try:
        for number in range(64):
            name = b"%d" % number + b"x" * 500_000
            assert wire.unpack("t", "1-0", [b"payload", b"1", name, b""]).body == 1
        retained, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert retained < 2_000_000
