"""XRANGE replies as a server writes them, and strategies for entries that are out to confuse whoever reads them."""

from collections.abc import Iterable, Sequence

import numpy as np
from hypothesis import strategies as st

from penstock.spark.entries.resp import Bytes

Entry = tuple[bytes, Sequence[bytes]]


def bulk(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)


def reply(entries: Iterable[Entry]) -> bytes:
    parts = [
        b"*2\r\n" + bulk(entry_id) + b"*%d\r\n" % len(fields) + b"".join(map(bulk, fields))
        for entry_id, fields in entries
    ]
    return b"*%d\r\n" % len(parts) + b"".join(parts)


def in_buffer(raw: bytes) -> Bytes:
    """As a task has it: in a bytearray that will be used again."""
    return np.frombuffer(bytearray(raw), np.uint8)


NUMBERS = st.integers(0, 2**64 - 1) | st.integers(1_700_000_000_000, 1_800_000_000_000) | st.integers(0, 20)
ENTRY_IDS = st.builds(lambda ms, seq: b"%d-%d" % (ms, seq), NUMBERS, NUMBERS)
FORGED = [
    b"\r\n", b"\r", b"*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n$1\r\nb", b"$1\r\nx\r\n", b"*2", b"*4", b"$36", b"-ERR",
    b"x\r\n*2\r\n$3\r\n9-9", b"a\r\nb\r\nc\r\nd", b"$-1", b"*-1\r\n", b"", b"\n", b"\r\n\r\n\r\n\r\n",
]  # fmt: skip
VALUES = (
    st.sampled_from(FORGED)
    | st.binary(max_size=30)
    | st.lists(st.sampled_from(FORGED), max_size=4).map(b"".join)
    | st.integers(0, 12_000).map(lambda size: b"v" * size)
)
PLAIN = st.binary(max_size=40).filter(lambda value: b"\r" not in value and not value.startswith(b"*"))
NAMES = st.sampled_from([b"id", b"payload", b"type", b"a", b"a name that is longer than a word", b"", b"\xff"])
HOSTILE = st.lists(
    st.tuples(ENTRY_IDS, st.lists(st.tuples(NAMES | VALUES, VALUES), min_size=1, max_size=4).map(lambda f: sum(f, ()))),
    max_size=8,
)


@st.composite
def uniform(draw: st.DrawFn, values: "st.SearchStrategy[bytes]" = PLAIN) -> list[Entry]:
    """Entries in a few layouts, as one stream has them."""
    layouts = draw(st.lists(st.lists(NAMES, min_size=1, max_size=3), min_size=1, max_size=3))
    entries: list[Entry] = []
    for _ in range(draw(st.integers(1, 12))):
        names = draw(st.sampled_from(layouts))
        entries.append((draw(ENTRY_IDS), [part for name in names for part in (name, draw(values))]))
    return entries
