"""Envelopes with base64 payloads, as an event bus has them."""

from base64 import b64encode
from typing import Any

import pytest

from penstock.errors import EncodeError, MalformedError
from penstock.message.message import Message
from penstock.message.wire import Wire
from tests.unit.message.entries import ID, NOON, PARENT, document, read

INNER = {
    "uid": ID,
    "topic": "orders",
    "key": "k",
    "kind": "Placed",
    "source": "shop",
    "headers": {"h": "v", "traceparent": PARENT},
    "occurred_at": "2026-01-31T12:00:00.000001Z",
    "payload": b64encode(b'{"a":1}').decode(),
    "content_type": "application/json",
    "event_version": "1",
    "idempotency_key": "i-1",
}


def test_an_envelope_is_read_and_nothing_it_says_is_lost() -> None:
    message = read("enveloped", b"message", {"message": INNER})
    headers = {"h": "v", "envelope-source": "shop", "envelope-event_version": '"1"', "envelope-idempotency_key": "i-1"}
    assert message == Message({"a": 1}, ID, "Placed", "k", headers, PARENT, None, NOON)
    assert document(Wire("enveloped").pack(message, "orders")) == {"message": INNER}


def test_a_copied_envelope_still_names_the_topic_it_came_from() -> None:
    message = read("enveloped", b"message", {"message": INNER}, topic="orders-copy")
    assert message.headers["envelope-topic"] == "orders"
    assert document(Wire("enveloped").pack(message, "elsewhere"))["message"]["topic"] == "orders"


def test_an_envelope_says_in_a_header_or_a_field_what_its_payload_is() -> None:
    raw = INNER | {"payload": "/wA="}
    for inner in (
        raw | {"content_type": "application/octet-stream"},
        raw | {"content_type": None, "headers": {"content-type": "application/octet-stream"}},
    ):
        assert read("enveloped", b"message", {"message": inner}).body == b"\xff\x00"
    wire = Wire("enveloped")
    assert wire.unpack("t", "1-1", wire.pack(Message(b"\xff", ID, time=NOON), "t")) == Message(b"\xff", ID, time=NOON)


def test_an_envelope_needs_to_know_its_topic() -> None:
    with pytest.raises(EncodeError, match="pack\\(message, topic\\)"):
        Wire("enveloped").pack(Message(1))


@pytest.mark.parametrize(
    "content",
    [
        b"1",
        {"message": 1},
        {"message": {}},
        INNER,
        {"message": INNER | {"payload": "!"}},
        {"message": INNER | {"payload": "!" + b64encode(b'{"a":1}').decode()}},
        {"message": INNER | {"payload": "AA"}},
        {"message": INNER | {"payload": {"a": 1}}},
        {"message": INNER | {"payload": ""}},
        {"message": INNER | {"payload": b64encode(b'{"a":1,"a":2}').decode()}},
        {"message": INNER | {"payload": b64encode(b"[" * 101 + b"]" * 101).decode()}},
        {"message": INNER | {"content_type": "text/csv"}},
        {"message": INNER | {"headers": {"a": 1}}},
        {"message": INNER | {"headers": "x"}},
        {"message": INNER | {"occurred_at": "noon"}},
        {"message": INNER | {"uid": 5}},
    ],
)
def test_a_broken_envelope_is_malformed(content: Any) -> None:
    with pytest.raises(MalformedError):
        read("enveloped", b"message", content)
