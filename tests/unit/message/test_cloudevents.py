"""CloudEvents, structured or bare, as a change stream has them."""

from typing import Any

import pytest

from penstock.errors import MalformedError
from penstock.message.ids import entry_uuid, foreign_id
from penstock.message.message import Message
from penstock.message.wire import Wire
from tests.unit.message.entries import ID, NOON, PARENT, document, read


def test_a_cloud_event_is_read_with_its_trace_and_extensions() -> None:
    event = {
        "specversion": "1.0",
        "id": ID.upper(),
        "source": "/drasi",
        "type": "change",
        "time": "2026-01-31T12:00:00.000001Z",
        "datacontenttype": "application/json",
        "data": {"op": "i"},
        "traceparent": PARENT,
        "tracestate": "x=y",
        "subject": "s",
        "sequence": 7,
        "exact": "7",
        "nothing": None,
    }
    assert read("cloudevents", b"data", event) == Message(
        {"op": "i"},
        ID,
        "change",
        None,
        {"ce-source": "/drasi", "ce-subject": "s", "ce-sequence": "7", "ce-exact": '"7"'},
        PARENT,
        "x=y",
        NOON,
    )
    wire = Wire("cloudevents")
    again = document(wire.pack(read("cloudevents", b"data", event)))
    assert again == {key: value for key, value in event.items() if key != "nothing"} | {"id": ID}


def test_a_written_cloud_event_has_all_that_the_standard_demands() -> None:
    event = document(Wire("cloudevents").pack(Message({"a": 1}, ID)))
    assert event == {
        "specversion": "1.0",
        "id": ID,
        "source": "penstock",
        "type": "penstock.untyped",
        "datacontenttype": "application/json",
        "data": {"a": 1},
    }
    assert document(Wire("cloudevents").pack(Message(1), "orders"))["source"] == "orders"


def test_bytes_travel_in_a_cloud_event_as_base64() -> None:
    wire = Wire("cloudevents")
    fields = wire.pack(Message(b"\xff\x00", ID))
    assert document(fields)["data_base64"] == "/wA="
    assert wire.unpack("t", "1-1", fields) == Message(b"\xff\x00", ID)


def test_bare_json_with_its_trace_beside_it_is_read() -> None:
    message = read(
        *("cloudevents", b"data", {"id": "x"}, b"enqueue_time", b"1769860800000001999"),
        *(b"tracestate", b"x=y", b"traceparent", PARENT.encode()),
    )
    expected_headers = {"enqueue-time": "1769860800000001999"}
    assert message == Message(
        {"id": "x"}, entry_uuid("orders", "5-1"), None, None, expected_headers, PARENT, "x=y", NOON
    )
    assert read("cloudevents", b"data", [1]).body == [1]


def test_data_that_mentions_a_specversion_is_still_bare_beside_an_enqueue_time() -> None:
    assert read("cloudevents", b"data", {"specversion": 3}, b"enqueue_time", b"1").body == {"specversion": 3}


def test_an_event_id_that_is_no_uuid_is_mapped_and_kept() -> None:
    event = {"specversion": "1.0", "id": "e-1", "source": "orders", "type": "t", "data": 1}
    message = read("cloudevents", b"data", event)
    assert (message.id, message.headers) == (foreign_id("orders", b"e-1"), {"foreign-id": "e-1"})
    wire = Wire("cloudevents")
    assert wire.unpack("orders", "9-9", wire.pack(message, "orders")) == message


BARE_EVENT = {"specversion": "1.0", "id": ID, "source": "s", "type": "t", "data": 1}


@pytest.mark.parametrize(
    "fields",
    [
        (b"payload", b"1"),
        (b"data", b""),
        (b"data", b"\xff"),
        (b"data", b'{"specversion":"1.0","specversion":"1.0"}'),
        (b"data", BARE_EVENT | {"specversion": "0.3"}),
        (b"data", BARE_EVENT | {"specversion": 1}),
        (b"data", BARE_EVENT | {"id": ""}),
        (b"data", BARE_EVENT | {"id": 5}),
        (b"data", BARE_EVENT | {"source": None}),
        (b"data", BARE_EVENT | {"type": []}),
        (b"data", BARE_EVENT | {"time": "noon"}),
        (b"data", BARE_EVENT | {"time": 5}),
        (b"data", BARE_EVENT | {"traceparent": 5}),
        (b"data", BARE_EVENT | {"data_base64": "AA=="}),
        (b"data", {key: value for key, value in BARE_EVENT.items() if key != "data"}),
        (b"data", {key: value for key, value in BARE_EVENT.items() if key != "data"} | {"data_base64": "!"}),
        (b"data", BARE_EVENT | {"penstockheaders": "[]"}),
        (b"data", b"1", b"enqueue_time", b"-1"),
        (b"data", b"1", b"enqueue_time", "\N{SUPERSCRIPT TWO}".encode()),
        (b"data", b"1", b"enqueue_time", b"9" * 400),
        (b"data", b"1", b"traceparent", b"\xff"),
        (b"data", b"1", b"data", b"1"),
    ],
)
def test_a_broken_event_is_malformed(fields: tuple[Any, ...]) -> None:
    with pytest.raises(MalformedError):
        read("cloudevents", *fields)
