"""The vectorised reading of a reply is the client's, or it is none."""

from collections.abc import Sequence

import hiredis
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import ServerUnreachableError
from penstock.spark.entries.page import Page
from penstock.spark.entries.resp import find_entries
from tests.spark.replies import FORGED, HOSTILE, Entry, in_buffer, reply, uniform


def found(raw: bytes) -> list[list[object]] | None:
    """What the offsets say, entry by entry; None where they say nothing."""
    page = Page(in_buffer(raw))
    if page.shapes is None:
        return None
    numbered = [(int(row), page.entry(shape, at)) for shape in page.shapes for at, row in enumerate(shape.rows)]
    assert [number for number, _ in sorted(numbered)] == list(range(page.count))
    return [[entry_id, list(fields)] for _, (entry_id, fields) in sorted(numbered)]


def parsed(raw: bytes) -> object:
    """What a client makes of it; None unless it is exactly one whole reply."""
    reader = hiredis.Reader()
    reader.feed(raw)
    try:
        value = reader.gets()
        return value if value is not False and reader.gets() is False and not reader.has_data() else None
    except hiredis.ProtocolError:
        return None


@settings(max_examples=400)
@given(HOSTILE | uniform())
def test_offsets_are_the_clients_entries_or_none(entries: list[Entry]) -> None:
    raw = reply(entries)
    assert found(raw) in (None, parsed(raw))


@settings(max_examples=300)
@given(uniform())
def test_plain_entries_in_a_few_layouts_are_found(entries: list[Entry]) -> None:
    raw = reply(entries)
    assert found(raw) == parsed(raw) is not None


@settings(max_examples=600)
@given(uniform(), st.data())
def test_a_reply_that_was_tampered_with_never_gives_other_entries_than_a_client_finds(
    entries: list[Entry], data: st.DataObject
) -> None:
    raw = bytearray(reply(entries))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        cut = data.draw(st.integers(0, 3))
        raw[at : at + cut] = data.draw(st.sampled_from([*FORGED, b"1", b"2", b"*", b"$", b"\r", b"\n"]))
    seen = found_or_broken(bytes(raw))
    assert seen is None or seen == parsed(bytes(raw))


def found_or_broken(raw: bytes) -> list[list[object]] | None:
    if not raw or find_entries(in_buffer(raw)) is None:
        return None
    return found(raw)


@pytest.mark.parametrize("end", range(1, 60))
def test_a_reply_that_was_cut_off_is_never_taken_for_a_whole_one(end: int) -> None:
    raw = reply([(b"1-1", [b"a", b"b"]), (b"1-2", [b"a", b"*2\r\n"])])
    assert found_or_broken(raw[:end]) is None


LAYOUTS: Sequence[Sequence[Entry]] = [
    [],
    [(b"0-1", [b"id", b""])],
    [(b"18446744073709551615-18446744073709551615", [b"payload", b"x" * 99_999])],
    [(b"1-%d" % n, [b"id", b"%d" % n, b"payload", b"{}"] if n % 3 else [b"payload", b"[]"]) for n in range(50)],
    [(b"1-%d" % n, [b"same", b"a", b"same", b"b"]) for n in range(5)],
    [(b"1-%d" % n, [b"f%d" % (m + n % 5) for m in range(2 * 64)]) for n in range(20)],
]


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 99, 100, 999, 1000, 9999, 10_000, 99_999])
def test_values_of_every_number_of_digits_are_found(size: int) -> None:
    raw = reply([(b"1-1", [b"f", b"x" * size]), (b"1-2", [b"f", b"y" * (size + 1 if size < 99_999 else 5)])])
    assert found(raw) == parsed(raw)


@pytest.mark.parametrize("entries", LAYOUTS)
def test_usual_pages_do_without_the_general_parser(entries: Sequence[Entry]) -> None:
    raw = reply(entries)
    assert found(raw) == parsed(raw)


@pytest.mark.parametrize(
    "entries",
    [
        [(b"1-1", [b"payload", b"x" * 100_000])],
        [(b"1-1", [b"payload", b"line\r\nbreak"])],
        [(b"1-%d" % n, [b"field %d" % n, b"v"]) for n in range(17)],
    ],
)
def test_what_is_too_long_broken_in_lines_or_too_varied_is_left_to_the_client(entries: list[Entry]) -> None:
    raw = reply(entries)
    page = Page(in_buffer(raw))
    assert page.shapes is None
    assert [[entry_id, fields] for entry_id, fields in page.entries()] == parsed(raw)
    assert page.last_id.encode() == entries[-1][0]


WRONG = [
    b"*-1\r\n", b"$-1\r\n", b":5\r\n", b"+OK\r\n", b"", b"*2\r\n*2\r\n", b"*1\r\n:5\r\n", b"*1\r\n*-1\r\n",
    b"*1\r\n*2\r\n:1\r\n*0\r\n", b"*1\r\n*2\r\n$3\r\n1-1\r\n*-1\r\n", b"*1\r\n*2\r\n$3\r\n1-1\r\n$1\r\na\r\n",
    b"*1\r\n*2\r\n$3\r\n1-1\r\n*1\r\n$1\r\na\r\n", b"*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n:1\r\n",
    b"HTTP/1.1 400 Bad Request\r\n\r\n", b"*0\r\n*0\r\n", b"*\r\n",
]  # fmt: skip


@pytest.mark.parametrize("raw", WRONG)
def test_a_reply_that_is_no_list_of_entries_counts_as_no_answer(raw: bytes) -> None:
    with pytest.raises(ServerUnreachableError, match="reading a page: it sent what is not Redis protocol"):
        Page(in_buffer(raw))


@example([(b"1-1", [b"a", b"b"]), (b"1-2", [b"b", b"c"]), (b"1-3", [b"a", b"d"])])
@given(uniform())
def test_the_last_id_is_that_of_the_last_entry_whatever_its_layout(entries: list[Entry]) -> None:
    assert Page(in_buffer(reply(entries))).last_id.encode() == entries[-1][0]
