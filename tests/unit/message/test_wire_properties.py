"""For any input: unpack gives a message or MalformedError with the raw fields; pack gives what unpack reads back."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import EncodeError, MalformedError
from penstock.message import fields as f
from penstock.message import strict_json
from penstock.message.ids import canonical
from penstock.message.message import Message
from penstock.message.wire import Wire
from penstock.options import Limits

pytestmark = pytest.mark.timeout(180)  # many examples, each of which takes long where the machine is busy

DIALECTS = ["native", "cloudevents", "job", "enveloped", "flat"]
NAMES = [value for name, value in vars(f).items() if name.isupper() and isinstance(value, bytes)]


class Placed(msgspec.Struct):
    a: int
    b: list[str] = []


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SOME_TEXT = TEXT.filter(bool)
NUMBERS = st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)
LOOKS_LIKE_JSON = st.sampled_from(
    ["1", "true", "null", "[]", '{"a":1,"a":1}', '"', '"x"', "1e999", "NaN", " 1", "\\u003a", ":"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT | LOOKS_LIKE_JSON,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | LOOKS_LIKE_JSON, inner, max_size=4),
    max_leaves=10,
)
FIXED_PREFIXES = ("job-", "ce-", "envelope-")
# Headers with a meaning of their own, which Hypothesis picks up from our source.
SPOKEN_FOR = {"content-type", "foreign-id", "enqueue-time", "traceparent", "tracestate", "baggage"}
HEADERS = st.dictionaries(
    TEXT.filter(lambda name: not name.startswith(FIXED_PREFIXES) and name not in SPOKEN_FOR)
    | st.sampled_from(["ce-subject", "envelope-source", "h"]),
    TEXT | LOOKS_LIKE_JSON,
    max_size=4,
)
TIMES = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001
MESSAGES = st.builds(
    Message,
    VALUES,
    id=st.uuids().map(str),
    type=SOME_TEXT,
    key=st.none() | SOME_TEXT,
    headers=HEADERS,
    traceparent=st.none() | SOME_TEXT,
    tracestate=st.none() | SOME_TEXT,
    time=TIMES,
)
RESERVED = {name.decode() for name in NAMES}


def same(one: Any, other: Any) -> bool:
    """Equal, and of equal types all the way down: 1, 1.0 and true are three values."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=60, deadline=None)
@given(message=MESSAGES)
def test_what_is_packed_is_read_back_equal(dialect: str, message: Message[Any]) -> None:
    if dialect == "flat":
        body = message.body if isinstance(message.body, dict) else {"value": message.body}
        message = msgspec.structs.replace(
            message, body={key: value for key, value in body.items() if key not in RESERVED}
        )
    wire = Wire(dialect)
    read = wire.unpack("topic", "1-1", wire.pack(message, "topic"))
    assert same(read.body, message.body)
    assert read == message


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=50), HEADERS)
def test_any_bytes_are_read_back_equal(body: bytes, headers: dict[str, str]) -> None:
    wire = Wire()
    message = Message(body, headers=headers)
    assert wire.unpack("topic", "1-1", wire.pack(message)) == message


ANYTHING = st.recursive(
    VALUES
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.builds(object)
    | st.dates()
    | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=3) | st.integers(0, 3) | st.none() | st.sampled_from(["0", "1"]), inner, max_size=3
        )
        | st.tuples(inner, inner)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=60, deadline=None)
@given(
    body=ANYTHING,
    headers=st.dictionaries(
        st.text(max_size=5) | st.sampled_from(["content-type", "job-id"]), st.text(max_size=5), max_size=2
    ),
    text=st.none() | st.text(max_size=5),
)
def test_pack_writes_what_can_be_read_or_raises_encode_error(
    dialect: str, body: Any, headers: Any, text: str | None
) -> None:
    wire = Wire(dialect, limits=Limits(depth=5, payload_bytes=2000))
    try:
        fields = wire.pack(Message(body, headers=headers, type=text, key=text), "topic")
    except EncodeError:
        return
    assert all(isinstance(part, bytes) for part in fields)
    wire.unpack("topic", "1-1", fields)


JSON_LIKE = st.text(alphabet='[]{}",:\\u0019ade.-+ \n\ud800é', max_size=40).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)
JUNK = st.binary(max_size=40) | JSON_LIKE | VALUES.map(lambda value: json.dumps(value).encode())
ENTRIES = st.lists(st.tuples(st.sampled_from(NAMES) | st.binary(max_size=6), JUNK), max_size=6).map(
    lambda pairs: [part for pair in pairs for part in pair]
)


def assert_message_or_malformed(wire: Wire, fields: list[bytes]) -> None:
    before = tuple(fields)
    outcome: Message[Any] | MalformedError
    try:
        outcome = wire.unpack("topic", "1-1", fields)
    except MalformedError as error:
        outcome = error
    assert tuple(fields) == before
    if isinstance(outcome, MalformedError):
        assert (outcome.raw, bool(outcome.reason)) == (before, True)
    else:
        assert canonical(outcome.id) == outcome.id
        assert all(isinstance(part, str) for header in outcome.headers.items() for part in header)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=150, deadline=None)
@given(fields=ENTRIES | st.lists(JUNK, max_size=5))
def test_any_fields_are_a_message_or_malformed(dialect: str, fields: list[bytes]) -> None:
    assert_message_or_malformed(Wire(dialect, types=[Placed]), fields)


@st.composite
def mutations(draw: st.DrawFn, dialect: str) -> list[bytes]:
    message = draw(MESSAGES)
    body = {"a": 1, "b": ["x"]} if dialect == "flat" or draw(st.booleans()) else message.body
    fields = Wire(dialect).pack(msgspec.structs.replace(message, body=body, type="Placed"), "topic")
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(fields) - 1))
        part = fields[at]
        cut, until = sorted((draw(st.integers(0, len(part))), draw(st.integers(0, len(part)))))
        action = draw(st.sampled_from(["drop", "double", "splice", "swap"]))
        if action == "drop" and len(fields) > 1:
            del fields[at]
        elif action == "double":
            fields += fields[at - at % 2 :][:2]
        elif action == "splice":
            fields[at] = part[:cut] + draw(JUNK) + part[until:]
        else:
            fields[at] = draw(st.sampled_from(fields))
    return fields


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_entry_is_a_message_or_malformed(dialect: str, data: st.DataObject) -> None:
    assert_message_or_malformed(Wire(dialect, types=[Placed]), data.draw(mutations(dialect)))


# Pieces that make sense side by side, over a line break or not at all.
WHOLE = [
    b'{"a":1}',
    b'{"a":{"b":2}}',
    b'{"a":1,"a":2}',
    b'{"a":[]}',
    b"{}",
    b"1",
    b"NaN",
    b"1.0",
    rb'{"a":"\u003a","a":1}',
]
PARTS = [
    b"{",
    b"}",
    b"}\n{",
    b"[1",
    b"2]",
    b",",
    b"3,4",
    b"",
    b" ",
    b"\n",
    b"\r",
    b'"',
    b'":"',
    b"[[[[[[",
    b"]]]]]]",
    b"\xff",
]
PIECES = st.sampled_from([*WHOLE, *PARTS])
PAYLOADS = st.lists(PIECES, min_size=1, max_size=3).map(b"".join) | VALUES.map(strict_json.encode)
RAW_IDS = st.uuids().map(lambda one: str(one).encode())
BAD_IDS = st.sampled_from([b"", b"\n", b"A" * 36, b"a" * 17 + b"\n" + b"a" * 18, b"\xff"])


@settings(max_examples=500, deadline=None)
@given(bodies=st.lists(st.tuples(RAW_IDS, PAYLOADS), min_size=1, max_size=4), bad_id=st.none() | BAD_IDS)
def test_what_is_unpacked_together_is_what_is_unpacked_alone(
    bodies: list[tuple[bytes, bytes]], bad_id: bytes | None
) -> None:
    wire = Wire(limits=Limits(depth=4))
    entries = [[f.ID, id, f.PAYLOAD, payload] for id, payload in bodies]
    if bad_id is not None:
        entries[-1][1] = bad_id
    together = wire.unpack_together(entries)
    if together is not None:
        alone = [wire.unpack("topic", "1-1", fields) for fields in entries]
        assert together == alone
        assert all(same(one.body, other.body) for one, other in zip(together, alone, strict=True))


@pytest.mark.parametrize("bodies", [[{"a": 1}] * 3, [{"a": {"b": ":"}}, {"c": [[1], {}]}], [[1, "x"], 5, None]])
def test_plain_messages_are_unpacked_together(bodies: list[Any]) -> None:
    wire = Wire()
    messages = [Message(body) for body in bodies]
    assert wire.unpack_together([wire.pack(message) for message in messages]) == messages


def test_bodies_unpacked_together_share_no_headers() -> None:
    one, other = Wire().unpack_together([Wire().pack(Message({"a": 1})), Wire().pack(Message({"a": 1}))]) or []
    assert one.headers == {} == other.headers
    assert one.headers is not other.headers


def test_what_is_not_plain_is_left_to_be_unpacked_alone() -> None:
    wire, plain = Wire(limits=Limits(payload_bytes=100)), Wire().pack(Message({"a": 1}))
    for other in (
        Wire().pack(Message({"a": "x" * 200})),
        Wire().pack(Message({"a": 1}, key="k")),
        [f.PAYLOAD, b"{}", f.ID, plain[1]],
        [f.ID, plain[1], f.PAYLOAD, b"{"],
        [f.ID, b"7", f.PAYLOAD, b"{}"],
        [f.ID, plain[1]],
    ):
        assert wire.unpack_together([plain, other]) is None
    assert Wire("flat").unpack_together([plain]) is None


@pytest.mark.parametrize(
    "payloads",
    [
        pytest.param([b'[{"a":1,"a":2},3]'], id="as many colons as items"),
        pytest.param([b'{"a":', b"1}", b"{} {}"], id="one over two lines, two on one"),
        pytest.param([b'{}\n{"a":', b"1}"], id="a break of its own"),
        pytest.param([b'{"a":1,"a":2}'], id="a key twice"),
    ],
)
def test_what_only_looks_like_one_object_each_is_not_read_together(payloads: list[bytes]) -> None:
    assert strict_json.parse_together(payloads, 200, max(map(len, payloads))) is None


@pytest.mark.parametrize("piece", [b"[", b'{"a":', b"[1,", b"[ ", b"[\n"])
def test_open_ends_are_never_read_together(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    monkeypatch.setattr(strict_json, "_decode_lines", read.append)
    assert strict_json.parse_together([piece * 100] * 100, 200, 100 * len(piece)) is None
    assert read == []
