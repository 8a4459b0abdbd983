"""A raw XRANGE reply, read as numpy arrays of offsets: where every id and value of every entry begins and ends.

Carriage returns only suggest where things are; then every byte outside the ids and values is compared with what the
protocol must have there, each declared length with the distance found, entry by entry up to the end of the reply. By
induction that is the parse a client would make, so a value that holds line breaks or forged headers can make this
give up, which costs time, but cannot make it wrong.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[Any]

_CR, _STAR = 13, 42
_LONGEST = 99_999  # "$99999\r\n" is the longest length that fits a window of eight bytes
_MOST_LAYOUTS = 16


class Spans(NamedTuple):
    """Where in the reply one value of each entry is."""

    starts: Numbers
    ends: Numbers


class Shape(NamedTuple):
    """The entries of a page that have the same field names in the same order."""

    names: tuple[bytes, ...]
    rows: Numbers
    """Which entries of the page, ascending."""
    ids: Spans
    values: tuple[Spans, ...]
    """For each field."""


class _Headers(NamedTuple):
    """`$<length>\\r\\n` for every length we read, as the high bytes of a little-endian word, and how long each is."""

    words: Words
    sizes: Numbers
    masks: Words


def find_entries(reply: Bytes) -> list[Shape] | None:
    """The entries of a whole XRANGE reply by layout; None if this must be left to a general parser."""
    returns = np.flatnonzero(reply == _CR)
    if len(returns) == 0 or reply[0] != _STAR or reply[-1] != 10:
        return None
    count = _number(bytes(reply[1 : returns[0]]))
    if not count or returns[-1] != len(reply) - 2:
        return [] if count == 0 and len(reply) == 4 else None
    names = _names_at(reply, int(returns[0]) + 2)
    if names is None:
        return None
    windows = all_windows(reply)
    width = 4 + 4 * len(names)
    if len(returns) == 1 + count * width:
        table = returns[1:].reshape(count, width)
        shape, good = _verify(windows, names, np.arange(count), returns[:-1:width], table)
        if good.all():
            return [shape]
    return _find_mixed(reply, returns, count, windows)


def _find_mixed(reply: Bytes, returns: Numbers, count: int, windows: Words) -> list[Shape] | None:
    starts, sizes = _entry_starts(reply, returns)
    if len(starts) != count:
        return None
    shapes: list[Shape] = []
    left = np.arange(count)
    while len(left):
        first = left[0]
        names = _names_at(reply, int(returns[starts[first] - 1]) + 2)
        if names is None or len(shapes) == _MOST_LAYOUTS:
            return None
        rows = left[sizes[left] == 2 * len(names)]
        at = starts[rows]
        if len(rows) == 0 or at[-1] + 4 + 4 * len(names) > len(returns):
            return None
        table = returns[at[:, None] + np.arange(4 + 4 * len(names))]
        shape, good = _verify(windows, names, rows, returns[at - 1], table)
        if not good[0]:
            return None
        shapes.append(_only(shape, good))
        left = np.setdiff1d(left, rows[good], assume_unique=True)
    return shapes


def _entry_starts(reply: Bytes, returns: Numbers) -> tuple[Numbers, Numbers]:
    """The line at which each entry starts, and its number of names and values; nothing if it is not plain to see."""
    nothing = np.empty(0, np.int64)
    stars = np.flatnonzero(reply[returns[:-1] + 2] == _STAR) + 1
    if len(stars) == 0 or len(stars) % 2:
        return nothing, nothing
    starts, sized = stars[0::2], stars[1::2]
    begins, ends = returns[sized - 1] + 3, returns[sized]
    sizes = np.zeros(len(starts), np.int64)
    for place in range(4):
        digit = reply[np.minimum(begins + place, len(reply) - 1)].astype(np.int64) - 48
        sizes = np.where(begins + place < ends, sizes * 10 + digit, sizes)
    expected = np.append(starts[1:], len(returns))
    if (sized != starts + 3).any() or (starts + 4 + 2 * sizes != expected).any():
        return nothing, nothing
    return starts, sizes


def _verify(
    windows: Words, names: Sequence[bytes], rows: Numbers, before: Numbers, table: Numbers
) -> tuple[Shape, npt.NDArray[np.bool_]]:
    """The places the table of line ends suggests, and for which entries each byte proves them.

    `before` is where what stands before each entry has ended: at the carriage return.
    """
    good = np.ones(len(rows), np.bool_)
    spans = []
    gap = b"\r\n*2\r\n"
    for number in range(len(names) + 1):
        column = 1 if number == 0 else 2 + 4 * number
        starts, ends = table[:, column] + 2, table[:, column + 1]
        if number:
            gap = b"\r\n$%d\r\n%b\r\n" % (len(names[number - 1]), names[number - 1])
            gap = b"\r\n*%d" % (2 * len(names)) + gap if number == 1 else gap
        good &= _holds(windows, before, gap, starts, ends)
        spans.append(Spans(starts, ends))
        before = ends
    return Shape(tuple(names), rows, spans[0], tuple(spans[1:])), good


def _holds(windows: Words, before: Numbers, gap: bytes, starts: Numbers, ends: Numbers) -> npt.NDArray[np.bool_]:
    """Where `gap` and the declared length of the value, and nothing else, lie between `before` and the value."""
    lengths = ends - starts
    good = (lengths >= 0) & (lengths <= _LONGEST)
    lengths = np.where(good, lengths, 0)
    sizes = _HEADERS.sizes[lengths]
    good &= starts - sizes - len(gap) == before
    # Windows look back from where they are, at most eight bytes: before the first value there are always as many.
    good &= (windows[starts - 8] & _HEADERS.masks[sizes]) == _HEADERS.words[lengths]
    return good & end_with(windows, starts - sizes, gap)


def end_with(windows: Words, ends: Numbers, text: bytes) -> npt.NDArray[np.bool_]:
    """Where `text` lies before these ends."""
    good = np.ones(len(ends), np.bool_)
    while text:
        tail = text[-8:]
        word = np.frombuffer(tail.rjust(8, b"\0"), "<u8")[0]
        good &= (windows[np.maximum(ends - 8, 0)] & _HEADERS.masks[len(tail)]) == word
        ends, text = ends - 8, text[:-8]
    return good


def _only(shape: Shape, good: npt.NDArray[np.bool_]) -> Shape:
    ids, *values = (Spans(span.starts[good], span.ends[good]) for span in (shape.ids, *shape.values))
    return Shape(shape.names, shape.rows[good], ids, tuple(values))


def _names_at(reply: Bytes, at: int) -> tuple[bytes, ...] | None:
    """The field names of the entry that starts here, read one by one; None if it is not an entry."""
    view = reply.data
    try:
        at = _expect(view, at, b"*2\r\n")
        at, _ = _bulk(view, at)
        size, at = _line(view, at, b"*")
        names = []
        for number in range(size):
            at, value = _bulk(view, at)
            if number % 2 == 0:
                names.append(bytes(value))
    except ValueError:
        return None
    return tuple(names) if size > 0 and size % 2 == 0 else None


def _bulk(view: memoryview, at: int) -> tuple[int, memoryview]:
    size, at = _line(view, at, b"$")
    return _expect(view, at + size, b"\r\n"), view[at : at + size]


def _line(view: memoryview, at: int, kind: bytes) -> tuple[int, int]:
    at = _expect(view, at, kind)
    end = bytes(view[at : at + 20]).index(b"\r\n")
    number = _number(bytes(view[at : at + end]))
    if number is None:
        raise ValueError
    return number, at + end + 2


def _expect(view: memoryview, at: int, what: bytes) -> int:
    if view[at : at + len(what)] != what:
        raise ValueError
    return at + len(what)


def _number(digits: bytes) -> int | None:
    return int(digits) if digits.isdigit() and len(digits) < 10 else None


def all_windows(array: Bytes) -> Words:
    """All runs of eight bytes, as little-endian words over the same memory."""
    return np.ndarray((len(array) - 7,), "<u8", array, strides=(1,))


def _make_headers() -> _Headers:
    rest = np.arange(_LONGEST + 1)
    digits = 1 + sum((rest >= 10**place).astype(np.int64) for place in range(1, 5))
    words = np.full(len(rest), int.from_bytes(b"\r\n", "little") << 48) + (ord("$") << (40 - 8 * digits))
    for place in range(5):
        words += np.where(place < digits, (48 + rest % 10) << (40 - 8 * place), 0)
        rest //= 10
    masks = [0, *((1 << 64) - (1 << (64 - 8 * size)) for size in range(1, 9))]
    return _Headers(words.astype("<u8"), 3 + digits, np.array(masks, "<u8"))


_HEADERS = _make_headers()
