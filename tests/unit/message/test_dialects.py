"""What holds in every dialect."""

from datetime import datetime
from typing import Any

import pytest

from penstock.errors import EncodeError, MalformedError
from penstock.message.message import Message
from penstock.message.wire import Wire
from penstock.options import Limits
from tests.unit.message.entries import ID, NOON, PARENT

FULL: Message[Any] = Message({"a": [1, None]}, ID, "Placed", "k", {"h": "v", "ce-subject": "5"}, PARENT, "x=y", NOON)
ALL = ["cloudevents", "job", "enveloped", "flat"]


@pytest.mark.parametrize("dialect", ALL)
def test_every_part_of_a_message_survives(dialect: str) -> None:
    wire = Wire(dialect)
    assert wire.unpack("orders", "5-1", wire.pack(FULL, "orders")) == FULL


@pytest.mark.parametrize("dialect", ALL)
def test_bookkeeping_on_retry_streams_is_ignored(dialect: str) -> None:
    wire = Wire(dialect)
    fields = [*wire.pack(FULL, "orders"), b"penstock-delivery", b'{"attempt":2}']
    assert wire.unpack("orders", "5-1", fields) == FULL


@pytest.mark.parametrize("dialect", ALL)
def test_a_newer_version_is_refused_in_every_dialect(dialect: str) -> None:
    wire = Wire(dialect)
    with pytest.raises(MalformedError, match="newer version"):
        wire.unpack("orders", "5-1", [*wire.pack(FULL, "orders"), b"penstock", b"2"])


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize(
    "message",
    [
        Message({"a": float("nan")}, type="T"),
        Message({"a": "\ud800"}, type="T"),
        Message({"a": object()}, type="T"),
        Message({"a": "x" * 2**20}, type="T"),
        Message({"a": 1}, type="T", id="5"),
        Message({"a": 1}, type="T", key=""),
        Message({"a": 1}, type="\ud800"),
        Message({"a": 1}, type="T", traceparent="\ud800"),
        Message({"a": 1}, type="T", headers={"a": 1}),  # type: ignore[dict-item]
        Message({"a": 1}, type="T", headers={"\ud800": "1"}),
        Message({"a": 1}, type="T", time=datetime(2026, 1, 1)),  # noqa: DTZ001
    ],
)
def test_what_a_dialect_cannot_write_ends_as_an_encode_error(dialect: str, message: Message[Any]) -> None:
    with pytest.raises(EncodeError):
        Wire(dialect).pack(message, "orders")


@pytest.mark.parametrize("dialect", ["cloudevents", "job", "enveloped"])
def test_the_length_cap_holds_for_the_whole_document(dialect: str) -> None:
    with pytest.raises(EncodeError, match="limit is 300"):
        Wire(dialect, limits=Limits(payload_bytes=300)).pack(Message("x" * 290, type="T"), "t")


@pytest.mark.parametrize("dialect", ["cloudevents", "job"])
def test_the_depth_cap_holds_for_the_whole_document(dialect: str) -> None:
    with pytest.raises(EncodeError, match="deeper than 3"):
        Wire(dialect, limits=Limits(depth=3)).pack(Message([[[]]], type="T"), "t")
