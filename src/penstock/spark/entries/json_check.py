"""Whether many payloads are JSON by the rules of `strict_json.parse`, at 0.6 of the CPU that a loop over them takes.

All of them are scanned in one call of msgspec that makes no values; if each has its own length then, none reached into
the next. That leaves what such a scan does not see: numbers out of range, nesting, duplicate keys. Signs of those are
looked for in all payloads at once; the few that show one, and only these, are parsed. UTF-8 is the caller's to check.
"""

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.message.strict_json import parse
from penstock.spark.entries.resp import Bytes, Numbers, Spans, Words, all_windows, end_with
from penstock.spark.entries.vectors import Mask, binary

_scan = msgspec.json.Decoder(list[msgspec.Raw]).decode
_QUOTE, _COLON, _BACKSLASH, _OPENING, _EXPONENT = b'":\\{e'
_IN_FRONT = b"       ["  # a word of eight bytes, so that one can look back from the first payload
_STEP = 64
_LONG = 3 * _STEP  # bytes: a number out of range without a large exponent is longer, and has digits at three steps
_BLOCK = 128
_IS_BLANK = np.isin(np.arange(256), list(b" \t\r\n"))
_SHAPES = 4


def find_valid(reply: Bytes, spans: Spans, depth: int) -> Mask | None:
    """Which of the payloads at these places are valid; None if all are."""
    joined, starts = _join(reply, spans)
    lengths = spans.ends - spans.starts
    doubtful = np.ones(len(lengths), np.bool_)
    if _scanned(joined, lengths):
        array = np.frombuffer(joined, np.uint8)
        doubtful = _strange_numbers(array, starts, lengths) | _many_brackets(array, starts, lengths, depth)
        if _BACKSLASH in joined:
            doubtful[_rows(starts, np.flatnonzero(array == _BACKSLASH))] = True
        doubtful |= _perhaps_repeated_keys(array, starts, ~doubtful)
    good = np.ones(len(lengths), np.bool_)
    for row in np.flatnonzero(doubtful):
        good[row] = _is_valid(reply[spans.starts[row] : spans.ends[row]].tobytes(), depth)
    return None if good.all() else good


def _is_valid(payload: bytes, depth: int) -> bool:
    try:
        parse(payload, depth)
    except Exception:  # noqa: BLE001 - whatever it is, the reader of single rows will find and name it
        return False
    return True


def _join(reply: Bytes, spans: Spans) -> tuple[bytearray, Numbers]:
    """The payloads as one JSON array, and where in it each starts."""
    # The byte behind each payload comes along, to be overwritten by a comma.
    values = binary(reply, Spans(spans.starts, spans.ends + 1))
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[: len(values) + 1].astype(np.int64) + len(_IN_FRONT)
    joined = bytearray(bounds[-1])
    joined[: len(_IN_FRONT)] = _IN_FRONT
    array = np.frombuffer(joined, np.uint8)
    array[len(_IN_FRONT) :] = np.frombuffer(data, np.uint8, len(array) - len(_IN_FRONT))
    array[bounds[1:] - 1] = ord(",")
    array[-1] = ord("]")
    return joined, bounds[:-1]


def _scanned(joined: bytearray, lengths: Numbers) -> bool:
    """Whether each payload is one JSON value with nothing around it.

    A value that began late in its payload and were yet as long would end behind it, so the next one would begin late
    too, and so on: the last would have no bracket left to close the array.
    """
    try:
        found = _scan(joined)
    except (msgspec.DecodeError, RecursionError):
        return False
    return len(found) == len(lengths) and bool((np.fromiter(map(len, found), np.int64, len(found)) == lengths).all())


def _rows(starts: Numbers, places: Numbers) -> Numbers:
    return np.searchsorted(starts, places, "right") - 1


def _strange_numbers(array: Bytes, starts: Numbers, lengths: Numbers) -> Mask:
    """Payloads with what may be a large exponent, an `e` after a digit and before three, or a very long number."""
    doubtful = np.zeros(len(starts), np.bool_)
    at = np.flatnonzero((array[:-4] | 0x20) == _EXPONENT)
    at = at[_are_digits(array[at + 2])]  # the third if there is no sign, else the second
    doubtful[_rows(starts, at[_are_digits(array[at - 1]) & _are_digits(array[at + 3])])] = True
    if lengths.max() > _LONG:
        digits = _are_digits(array[::_STEP])
        doubtful[_rows(starts, np.flatnonzero(digits[:-2] & digits[1:-1] & digits[2:]) * _STEP + 2 * _STEP)] = True
    return doubtful


def _are_digits(array: Bytes) -> npt.NDArray[np.bool_]:
    return array - np.uint8(48) < 10


def _many_brackets(array: Bytes, starts: Numbers, lengths: Numbers, depth: int) -> Mask:
    """Payloads that may have more opening brackets than `depth`: counted by blocks, so neighbours count too."""
    if lengths.max() <= 2 * depth:
        return np.zeros(len(starts), np.bool_)
    opening = ((array | 0x20) == _OPENING).view(np.uint8)
    blocks = np.add.reduceat(opening, np.arange(0, len(array), _BLOCK), dtype=np.uint8)
    total = np.append(0, np.cumsum(blocks, dtype=np.int64))
    many: Mask = total[(starts + lengths) // _BLOCK + 1] - total[starts // _BLOCK] > depth
    return many


def _perhaps_repeated_keys(array: Bytes, starts: Numbers, wanted: Mask) -> Mask:
    """Of the wanted payloads all but those with the same keys as one that has none twice.

    Without escapes and blanks every key ends in `":`. A string that begins with a colon looks the same, so more may be
    compared than is needed, but no key is left out; and where all that is compared differs, no two keys are the same.
    """
    colons = np.flatnonzero(array == _COLON)
    before = array[colons - 1]
    doubtful = np.zeros(len(starts), np.bool_)
    doubtful[_rows(starts, colons[_IS_BLANK[before]])] = True
    ends = colons[before == _QUOTE]
    firsts = np.searchsorted(ends, starts)
    counts = np.diff(np.append(firsts, len(ends)))
    windows = all_windows(array)
    left = np.flatnonzero(wanted & ~doubtful)
    for _ in range(_SHAPES):
        if len(left) == 0:
            break
        keys = _keys(array, ends[firsts[left[0]] : firsts[left[0]] + counts[left[0]]])
        same = counts[left] == len(keys)
        same[same] = _have(windows, ends, firsts[left[same]], keys) if len(set(keys)) == len(keys) else False
        left = left[~same]
    doubtful[left] = True
    return doubtful


def _keys(array: Bytes, ends: Numbers) -> list[bytes]:
    """What stands before these colons, each from its opening to its closing quote."""
    text = array[: int(ends[-1])].tobytes() if len(ends) else b""
    return [text[text.rfind(b'"', 0, int(end) - 1) : int(end)] for end in ends]


def _have(windows: Words, ends: Numbers, firsts: Numbers, keys: list[bytes]) -> Mask:
    good = np.ones(len(firsts), np.bool_)
    for number, key in enumerate(keys):
        good &= end_with(windows, ends[firsts + number], key)
    return good
