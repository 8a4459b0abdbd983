"""JSON that two readers could understand differently is refused, and refusing is never expensive."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.message.faults import Unreadable
from penstock.message.strict_json import parse, strict_reader

DEPTH = 100


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"nul",
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"-1e999",
        b"[1e999]",
        b"01",
        b"1 x",
        b"{}{}",
        b"[1,]",
        b"\xef\xbb\xbf1",
        b"\xff",
        b'"\xff"',
        b'{"\xff":1}',
        b'"\xed\xa0\x80"',
        b'"\xc0\x80"',
        rb'"\ud800"',
        rb'"\udc00 and more text"',
        rb'{"a":["\ud800 x"]}',
        rb'{"\ud800 x":1}',
        rb'"\ud83d\ud83d\ude00"',
        b'"\x00"',
        b'"\x1f"',
        b"9" * 5000,
        b"-" + b"9" * 5000,
        b"[" + b"9" * 5000 + b"]",
        b'{"a":1,"a":1}',
        b'{"a":1,"a":2}',
        b'[{"x":{"b":[],"b":[]}}]',
        rb'{"a":1,"\u0061":2}',
        rb'{"a:":1,"a\u003a":2}',
        rb'{"k":"\u003a","a":1,"a":2}',
        b'{"k":":::", "a":1, "a":2}',
        b'{"a" : 1 , "a" : 2}',
        b'{"":1,"":2}',
        nested(DEPTH + 1),
        b'{"a":' * (DEPTH + 1) + b"1" + b"}" * (DEPTH + 1),
        b"[" * 100_000,
        b'[{"":' * 50_000,
    ],
)
def test_ambiguous_or_broken_json_is_refused(text: bytes) -> None:
    with pytest.raises(Unreadable):
        parse(text, DEPTH)


class Known(msgspec.Struct):
    a: int = 0


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"a":2}',
        b'{"skipped":1,"skipped":2}',
        b'{"a":1,"skipped":{"b":1,"b":1}}',
        b'{"skipped":"\xff"}',
        b'{"\xff":1}',
        b'{"skipped":1e999}',
        b'{"skipped":' + b"9" * 5000 + b"}",
        b'{"skipped":' + nested(DEPTH) + b"}",
    ],
)
def test_what_a_type_skips_is_held_to_the_same_rules(text: bytes) -> None:
    msgspec.json.decode(text, type=Known)
    with pytest.raises(Unreadable):
        strict_reader(msgspec.json.Decoder(Known).decode)(text, DEPTH)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (nested(DEPTH), None),
        (b"[" + b"[]," * 500 + b"[]]", None),
        (json.dumps({"text": "[" * 5000 + "{" * 5000}).encode(), None),
        (json.dumps({"text": '\\"[[[' * 500, "[" * 200: "]"}).encode(), None),
        (b"9" * 4300, 10**4300 - 1),
        (b"18446744073709551616", 2**64),
        (b"-9223372036854775809", -(2**63) - 1),
        (b'[{"a":1},{"a":1}]', [{"a": 1}, {"a": 1}]),
        (b'{"a":{"a":{"a":1}}}', {"a": {"a": {"a": 1}}}),
        (b'{"a": ":", "b": "::"}', {"a": ":", "b": "::"}),
        (rb'{"a":"\u003a","b":"\u003A"}', {"a": ":", "b": ":"}),
        (rb'{"\ud83d\ude00":1}', {"\U0001f600": 1}),
        (b" [1 , 2]\n", [1, 2]),
    ],
)
def test_valid_json_is_read_exactly(text: bytes, value: Any) -> None:
    assert parse(text, DEPTH) == (json.loads(text) if value is None else value)


def test_a_whole_number_never_becomes_a_float() -> None:
    assert type(parse(b"1" * 400, DEPTH)) is int


KEYS = st.text(alphabet='ab:"\\ é', max_size=3)


@st.composite
def objects_as_text(draw: st.DrawFn, depth: int = 3) -> str:
    """JSON text made by hand, so that an object can hold a key twice, under any spelling."""
    if depth == 0 or draw(st.booleans()):
        return json.dumps(draw(st.integers() | KEYS), ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):
        return "[" + ",".join(draw(st.lists(objects_as_text(depth - 1), max_size=3))) + "]"
    pairs = draw(st.lists(st.tuples(KEYS, objects_as_text(depth - 1), st.booleans()), max_size=4))
    return "{" + ", ".join(f"{spell(key, escaped)} :{value}" for key, value, escaped in pairs) + "}"


def spell(key: str, escaped: bool) -> str:
    return '"' + "".join(f"\\u{ord(c):04x}" for c in key) + '"' if escaped else json.dumps(key, ensure_ascii=False)


def repeats_a_key(text: str) -> bool:
    found = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        found.append(len({key for key, _ in pairs}) != len(pairs))

    json.loads(text, object_pairs_hook=look)
    return any(found)


@given(objects_as_text())
def test_a_document_is_refused_exactly_when_an_object_repeats_a_key(text: str) -> None:
    try:
        parse(text.encode(), DEPTH)
        refused = False
    except Unreadable:
        refused = True
    assert refused == repeats_a_key(text)


@given(st.text(alphabet='[]{}"\\a', max_size=60), st.integers(1, 5))
def test_whatever_is_accepted_is_within_the_depth(text: str, depth: int) -> None:
    try:
        value = parse(text.encode(), depth)
    except Unreadable:
        return
    assert levels(value) <= depth


def levels(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(levels, value), default=0) if isinstance(value, list) else 0


@pytest.mark.parametrize(
    "hostile",
    [
        b"[" * 2**20,
        b"[]," * (2**20 // 3),
        b'"' + b'\\"' * 2**19,
        b'[{"' * (2**20 // 3),
        b'"' * 2**20,
        b"\\" * 2**20 + b"[" * 200,
        b"[" * 101 + b'"' + b"\\[" * 2**19,
        b'{"a":' + b'"[",' * (2**20 // 4),
    ],
)
def test_a_megabyte_made_to_hurt_is_refused_at_once(hostile: bytes) -> None:
    started = time.process_time()
    with pytest.raises(Unreadable):
        parse(hostile, DEPTH)
    assert time.process_time() - started < 1.5


def test_a_megabyte_of_repeated_keys_is_refused_at_once() -> None:
    hostile = b"{" + b",".join(b'"%d":1' % n for n in range(80_000)) + b',"0":1}'
    started = time.process_time()
    with pytest.raises(Unreadable, match="duplicate key '0'"):
        parse(hostile, DEPTH)
    assert time.process_time() - started < 1.5
