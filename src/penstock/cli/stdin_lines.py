"""The lines that come to a command, as soon as they are there, and no more of them at once than there is room for."""

from collections.abc import Iterator
from typing import Any, NamedTuple

_AT_ONCE = 1000
_CHUNK = 256 * 1024


class Line(NamedTuple):
    """One line, without its end."""

    number: int
    """The first is 1, and every line counts."""

    text: bytes | None
    """None if it is too long to be held."""


def lines_of(arriving: Any, longest: int) -> Iterator[list[Line]]:
    """Those that have come, at most a thousand at once; blank ones are left out. `arriving` has `read1`, as stdin has.

    What is longer than `longest` bytes is read to its end, but not kept.
    """
    number, begun = 1, _Begun(longest)
    while chunk := arriving.read1(_CHUNK):
        first, *others = chunk.split(b"\n")
        begun.add(first)
        if not others:
            continue
        texts = [begun.ended(), *(text if len(text) <= longest else None for text in others[:-1])]
        begun.add(others[-1])
        lines = [line for line in map(Line, range(number, number + len(texts)), texts) if _has_text(line)]
        number += len(texts)
        for start in range(0, len(lines), _AT_ONCE):
            yield lines[start : start + _AT_ONCE]
    last = Line(number, begun.ended())
    if _has_text(last):
        yield [last]


class _Begun:
    """A line whose end has not come yet. It is put together once, at its end: else a long one takes for ever."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._longest:
            self._pieces.clear()
        else:
            self._pieces.append(piece)

    def ended(self) -> bytes | None:
        text = None if self._size > self._longest else b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return text


def _has_text(line: Line) -> bool:
    return line.text is None or bool(line.text.strip())
