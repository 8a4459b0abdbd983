"""Many payloads at once are judged as `parse` judges each."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.message.faults import Unreadable
from penstock.message.strict_json import parse
from penstock.spark.entries import json_check
from penstock.spark.entries.page import Page
from tests.spark.replies import in_buffer, reply

DEPTH = 20
TOKENS = st.lists(
    st.sampled_from(["{", "}", "[", "]", ",", ":", '"', '"a"', '"b"', "1", "1e400", "true", " ", "\\", '":', "\n",
                     "e12", "é"]),
    max_size=8,
).map("".join)  # fmt: skip
KEYS = st.sampled_from(["a", "b", "a longer key than a word", "", ":", "é", '"', "e1000"])
PLAIN = st.none() | st.integers() | st.floats(allow_nan=False) | KEYS | st.sampled_from([":", ":x", "1e999", "x:"])
BODIES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)
STYLES = st.sampled_from([(",", ":"), (", ", ": "), (",", " : "), (",\n", "\t:")])
DOCUMENTS = st.builds(
    lambda body, style, ascii_only: json.dumps(body, separators=style, ensure_ascii=ascii_only),
    BODIES, STYLES, st.booleans(),
)  # fmt: skip
ALIKE = st.lists(
    st.sampled_from(['{"a":1,"b":"x"}', '{"b":1,"a":2}', '{"a":1,"a":2}', '{"a":":","b":2}', '{"a":{"b":1}}'])
)
ODD = st.sampled_from(
    [
        '  "a', '",1', '",[1', "2]", " 1", "1 ", "1,2", "[1", '{"a":1},{"a":1', "1" * 300, "1" * 300 + "e99",
        "1" * 308 + ".5",
        "[" * 20 + "]" * 20, "[" * 21 + "]" * 21, '{"a":' * 21 + "1" + "}" * 21, "1e308", "1e309", "1E+400", "-1e400",
        "1.5e-400",
        "0e999", '"1e999"', '{"k":"' + "7" * 400 + '"}', '{"k":' + "7" * 400 + "}", '{"k":' + "7" * 5000 + "}", "NaN",
        "",
        '["' + "[" * 50 + '"]', '{"a":1,"\\u0061":2}', '{"a" :1,"a" :2}', "{} {}", "[[],[],[]]",
        '{"a":[{"b":1},{"b":2}]}',
    ]
)  # fmt: skip


SPELLED_KEYS = st.sampled_from(['"a"', '"b"', '"\\u0061"', '"a\\u003a"', '"a:"', '"a longer key"', '""', '":"'])
VALUES = st.sampled_from(
    ["1", '":"', '":a"', '"a"', "1e5", "1e400", "9" * 400, '{"a":1}', '{"a":1,"a":2}', '["a","b"]', '"x:y"']
)
COLONS = st.sampled_from([":", ": ", " :", "\n:"])
WELL_FORMED = st.lists(st.tuples(SPELLED_KEYS, COLONS, VALUES).map("".join), max_size=3).map(
    lambda m: f"{{{','.join(m)}}}"
)
"""Objects that any scan lets pass, right or wrong; so what else is wrong must be found by other means."""


def valid(payload: bytes) -> bool:
    try:
        parse(payload, DEPTH)
    except Unreadable:
        return False
    return True


def judged(payloads: list[str]) -> list[bool]:
    page = Page(in_buffer(reply([(b"1-1", [b"payload", payload.encode()]) for payload in payloads])))
    assert page.shapes is not None
    (shape,) = page.shapes
    found = json_check.find_valid(page.reply, shape.values[0], DEPTH)
    return [True] * len(payloads) if found is None else found.tolist()


PAYLOADS = (TOKENS | DOCUMENTS | ODD).filter(lambda payload: "\r" not in payload)


@settings(max_examples=1500, deadline=None)
@given(st.lists(PAYLOADS, min_size=1, max_size=8) | ALIKE.filter(bool))
@example(['  "a', '",1', "1", "1", "1"])
@example(['  "a', '",[1', "2]", "1", "1"])
@example(["[1", "2]", "1,2"])
@example(['{"a":":x","b":1}', '{"a":1,"b":":"}', '{"a":1,"a":":"}'])
def test_all_at_once_is_one_by_one(payloads: list[str]) -> None:
    assert judged(payloads) == [valid(payload.encode()) for payload in payloads]


@settings(max_examples=1000, deadline=None)
@given(st.lists(WELL_FORMED, min_size=1, max_size=5))
def test_what_is_only_wrong_in_meaning_is_found(payloads: list[str]) -> None:
    assert judged(payloads) == [valid(payload.encode()) for payload in payloads]


@settings(max_examples=500, deadline=None)
@given(st.lists(DOCUMENTS | ODD, min_size=1, max_size=5), st.data())
def test_tampering_is_seen_as_by_parse(payloads: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(payloads) - 1))
    cut = data.draw(st.integers(0, len(payloads[at])))
    payloads[at] = payloads[at][:cut] + data.draw(TOKENS) + payloads[at][cut + data.draw(st.integers(0, 3)) :]
    payloads = [payload.replace("\r", "") for payload in payloads]
    assert judged(payloads) == [valid(payload.encode()) for payload in payloads]


@pytest.mark.parametrize(
    "shape", ['{"id":%d,"s":"12:30","t":[1,2],"in":{"x":0.5}}', "[%d]", "%d", '{"k":%d,"text":"' + "t" * 500 + '"}']
)
def test_what_most_streams_carry_is_parsed_by_nobody(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_check, "parse", lambda *_: pytest.fail("parsed"))
    assert all(judged([shape % number for number in range(500)]))


def test_one_bad_payload_among_many_is_the_only_one() -> None:
    payloads = [f'{{"n":{number}}}' for number in range(300)]
    payloads[123] = '{"n":1,"n":2}'
    payloads[200] = "{"
    assert np.flatnonzero(~np.array(judged(payloads))).tolist() == [123, 200]
