"""Flat fields, as a stream manager has them."""

import json
from typing import Any

import pytest

from penstock.errors import EncodeError, MalformedError
from penstock.message.ids import entry_uuid
from penstock.message.message import Message
from penstock.message.wire import Wire
from tests.unit.message.entries import ID, read


def test_what_the_old_manager_wrote_is_read_as_it_meant() -> None:
    message = read(
        *("flat", b"agent_id", b"cline-1", b"count", b"123", b"data", b'{"a":[1]}', b"flag", b"True", b"none", b"None"),
        *(
            b"nan",
            b"NaN",
            b"sha",
            b"12e4567",
            b"long",
            b"9" * 5000,
            b"empty",
            b"",
            b"_retry_count",
            b"2",
            b"_original_id",
            b"5-0",
        ),
    )
    assert message.body == {
        "agent_id": "cline-1",
        "count": 123,
        "data": {"a": [1]},
        "flag": "True",
        "none": "None",
        "nan": "NaN",
        "sha": "12e4567",
        "long": "9" * 5000,
        "empty": "",
    }
    assert message.id == entry_uuid("orders", "5-1")
    assert message.headers == {"_retry_count": "2", "_original_id": "5-0"}


def test_flat_values_are_readable_and_keep_their_types() -> None:
    body = {
        "s": "plain",
        "n": 5,
        "f": 1.5,
        "b": True,
        "z": None,
        "l": [1],
        "digits": "5",
        "word": "true",
        "nan": "NaN",
        "q": '"q"',
    }
    fields = Wire("flat").pack(Message(body, ID))
    assert dict(zip(fields[::2], fields[1::2], strict=True)) == {
        b"_id": ID.encode(),
        b"s": b"plain",
        b"n": b"5",
        b"f": b"1.5",
        b"b": b"true",
        b"z": b"null",
        b"l": b"[1]",
        b"digits": b'"5"',
        b"word": b'"true"',
        b"nan": b'"NaN"',
        b"q": rb'"\"q\""',
    }
    assert {
        name.decode(): old_manager_reads(value) for name, value in zip(fields[2::2], fields[3::2], strict=True)
    } == body
    assert Wire("flat").unpack("t", "1-1", fields) == Message(body, ID)


def old_manager_reads(value: bytes) -> Any:
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value.decode()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200 + "]" * 200,
        '{"a":1,"a":2}',
        "[1e999]",
        "9" * 5000,
        "1e999",
        " 5",
        "-Infinity",
        "[" * 100_000,
        "\N{NO-BREAK SPACE}5",
    ],
)
def test_a_text_that_only_looks_like_json_stays_a_text(text: str) -> None:
    wire = Wire("flat")
    assert wire.unpack("t", "1-1", wire.pack(Message({"a": text}))).body == {"a": text}


@pytest.mark.parametrize(
    "fields",
    [
        (b"a", b"\xff"),
        (b"\xff", b"a"),
        (b"a", b"1", b"a", b"1"),
        (b"_id", ID.encode(), b"_id", ID.encode()),
        (b"a", b'{"b":1,"b":2}'),
        (b"a", b"[" * 200 + b"]" * 200),
        (b"_headers", b"[]"),
        (b"_time", b"noon"),
    ],
)
def test_a_broken_flat_entry_is_malformed(fields: tuple[bytes, ...]) -> None:
    with pytest.raises(MalformedError):
        read("flat", *fields)


@pytest.mark.parametrize(
    "body",
    [
        [1],
        "x",
        None,
        b"x",
        {"_id": 1},
        {"_retry_count": 1},
        {"penstock": 1},
        {"penstock-delivery": 1},
        {str(n): n for n in range(64)},
    ],
)
def test_a_body_that_cannot_be_flat_is_refused(body: Any) -> None:
    with pytest.raises(EncodeError):
        Wire("flat").pack(Message(body))
