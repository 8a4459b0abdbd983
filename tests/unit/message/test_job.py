"""Job documents, as a priority queue has them."""

import json
from typing import Any

import pytest

from penstock.errors import EncodeError, MalformedError
from penstock.message.ids import entry_uuid, foreign_id
from penstock.message.message import Message
from penstock.message.wire import Wire
from tests.unit.message.entries import ID, NOON, document, read

JOB = {
    "id": ID,
    "kind": "email.send",
    "payload": {"to": "x"},
    "priority": "high",
    "status": "running",
    "max_retries": 7,
    "retry_count": 2,
    "progress": 40,
    "created_at": "2026-01-31T12:00:00.000001Z",
    "scheduled_for": "2026-02-01T00:00:00Z",
    "timeout_ms": 1000,
    "metadata": {"tag": "a", "job-x": "b"},
}


def test_a_job_is_read_and_nothing_it_says_is_lost() -> None:
    message = read("job", b"data", JOB, b"job_id", ID.encode())
    assert (message.id, message.type, message.body, message.time) == (ID, "email.send", {"to": "x"}, NOON)
    assert message.headers == {
        "tag": "a",
        "job-metadata": '{"job-x":"b"}',
        "job-priority": "high",
        "job-status": "running",
        "job-max_retries": "7",
        "job-retry_count": "2",
        "job-progress": "40",
        "job-timeout_ms": "1000",
        "job-scheduled_for": "2026-02-01T00:00:00Z",
    }
    fields = Wire("job").pack(message)
    assert document(fields) == JOB
    assert fields[2:] == [b"job_id", ID.encode()]


def test_a_job_of_a_later_kind_keeps_what_we_do_not_know() -> None:
    job = JOB | {"stream_id": "q@1-1", "odd": {"a": [False]}, "progress": False, "metadata": {"n": 1}}
    again = document(Wire("job").pack(read("job", b"data", job)))
    assert json.dumps(again, sort_keys=True) == json.dumps(job, sort_keys=True)


def test_a_written_job_has_every_field_its_reader_demands() -> None:
    job = document(Wire("job").pack(Message({"to": "x"}, ID, type="email.send", time=NOON)))
    assert job == {
        "id": ID,
        "kind": "email.send",
        "payload": {"to": "x"},
        "priority": "medium",
        "status": "queued",
        "max_retries": 3,
        "retry_count": 0,
        "progress": 0,
        "created_at": "2026-01-31T12:00:00.000001Z",
        "scheduled_for": None,
        "timeout_ms": 30000,
        "metadata": {},
    }
    assert document(Wire("job").pack(Message(1, type="t")))["created_at"].endswith("Z")


def test_the_id_beside_a_job_serves_when_the_job_has_none() -> None:
    assert read("job", b"data", {"payload": 1}, b"job_id", ID.encode()).id == ID
    assert read("job", b"data", {"payload": 1}, b"job_id", b"j-1").id == foreign_id("orders", b"j-1")
    assert read("job", b"data", {"payload": 1}).id == entry_uuid("orders", "5-1")


@pytest.mark.parametrize(
    "fields",
    [
        (b"job_id", ID.encode()),
        (b"data", b"[]"),
        (b"data", {"id": ID, "kind": "t"}),
        (b"data", JOB | {"kind": 5}),
        (b"data", JOB | {"id": {}}),
        (b"data", JOB | {"metadata": [1]}),
        (b"data", JOB | {"created_at": 1712345678}),
        (b"data", b'{"payload":1,"payload":2}'),
    ],
)
def test_a_broken_job_is_malformed(fields: tuple[Any, ...]) -> None:
    with pytest.raises(MalformedError):
        read("job", *fields)


@pytest.mark.parametrize(
    "message",
    [
        Message({"a": 1}),
        Message(b"x", type="t"),
        Message(1, type="t", headers={"job-id": "5"}),
        Message(1, type="t", headers={"job-metadata": "[]"}),
        Message(1, type="t", headers={"job-x": '{"a":1,"a":1}'}),
    ],
)
def test_what_cannot_be_a_job_is_refused(message: Message[Any]) -> None:
    with pytest.raises(EncodeError):
        Wire("job").pack(message)
