"""Tables as people read them: ids and names of consumers are never broken, so that they can be copied anywhere.

What is too wide is folded between words, as heads are, which are never broken within one. Where that is not enough,
empty columns are left out, and of those that can be spared the ones that say 0 throughout; then texts are folded
narrower, then other long names are broken, then columns are left out that can be spared. Where there is no room even
so, or where one fact per line takes fewer lines, that is how it is shown.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from penstock.cli.shown import is_number, text_of

if TYPE_CHECKING:
    from rich.console import RenderableType

Row: TypeAlias = Mapping[str, Any]

_GAP = 2
_BREAKS = re.compile(r"(?<=[.,:/_-])")
_ID = re.compile(r"[0-9a-fA-F-]{36}|\d+-\d+")
_COPIED = ("id", "consumer")
_LONGEST_WORD = 64  # what is longer, like a body, is broken anyway


@dataclass(frozen=True)
class _Room:
    """How much of a column stays in one line, however little room there is."""

    text: int
    word: int


_AMPLE, _SCANT, _LEAST = _Room(20, _LONGEST_WORD), _Room(12, _LONGEST_WORD), _Room(8, 16)


@dataclass(frozen=True)
class _Column:
    name: str
    head: str
    cells: Sequence[str]
    justify: Literal["left", "right"]

    @property
    def is_empty(self) -> bool:
        """Though there are rows."""
        return bool(self.cells) and not any(self.cells)

    @property
    def is_nothing(self) -> bool:
        """All that it says is that there is none."""
        return bool(self.cells) and all(cell in ("", "0") for cell in self.cells)

    @property
    def widest(self) -> int:
        """In which nothing is folded."""
        return max(_width(line) for text in (self.head, *self.cells) for line in text.split("\n"))

    def least(self, room: _Room) -> int:
        """In which nothing is broken that must be whole."""
        words = {word for text in self.cells for word in text.split()}
        kept = (_width(word) for word in words if self._is_copied(word))
        others = (min(_width(word), room.word) for word in words if _width(word) <= _LONGEST_WORD)
        heads = (width for word in self.head.split() if (width := _width(word)) <= _LONGEST_WORD)
        return max(0, *kept, *others, *heads, min(self.widest, room.text))

    def _is_copied(self, word: str) -> bool:
        return self.name in _COPIED or _ID.fullmatch(word) is not None


def drawn(
    columns: Sequence[str],
    rows: Sequence[Row],
    width: int,
    *,
    heads: Mapping[str, str] | None = None,
    spare: Sequence[str] = (),
) -> "RenderableType":
    """Rows, no wider than this. `heads`: what stands above a column, if not its name; `spare`: what can be left out."""
    every = [_column(name, (heads or {}).get(name, name), [row.get(name) for row in rows]) for name in columns]
    for kept, room in _ways(every, spare):
        if (widths := _widths(kept, room, width)) is not None and _height(kept, widths) <= _height_of_blocks(every):
            return _table(kept, widths)
    return _blocks(every)


def facts_of(facts: Row) -> "RenderableType":
    """One thing: what is known of it, one fact per line."""
    return _facts([(name, text_of(value)) for name, value in facts.items()])


def _column(name: str, head: str, values: Sequence[Any]) -> _Column:
    is_right = bool(values) and all(map(is_number, values))
    return _Column(name, head, [text_of(value) for value in values], "right" if is_right else "left")


def _ways(every: Sequence[_Column], spare: Sequence[str]) -> Iterator[tuple[Sequence[_Column], _Room]]:
    """What to show, and in how little room, from the best to the last."""
    yield every, _AMPLE
    kept = [one for one in every if not one.is_empty]
    yield kept, _AMPLE
    kept = [one for one in kept if not (one.name in spare and one.is_nothing)]
    for room in (_AMPLE, _SCANT, _LEAST):
        yield kept, room
    for name in spare:
        kept = [one for one in kept if one.name != name]
        yield kept, _LEAST


def _widths(columns: Sequence[_Column], room: _Room, width: int) -> list[int] | None:
    """One for each, if there is room: what is left over goes first to those that need least of it."""
    widths = [one.least(room) for one in columns]
    left = width - sum(widths) - _GAP * (len(columns) - 1)
    if left < 0:
        return None
    wanting = sorted(
        (one.widest - least, place) for place, (one, least) in enumerate(zip(columns, widths, strict=True))
    )
    for others, (wanted, place) in zip(range(len(columns), 0, -1), wanting, strict=True):
        given = min(wanted, left // others)
        widths[place] += given
        left -= given
    return widths


def _height(columns: Sequence[_Column], widths: Sequence[int]) -> int:
    """About how many lines a table takes: where words end is not looked at."""
    folded = ([_lines(cell, width) for cell in one.cells] for one, width in zip(columns, widths, strict=True))
    return sum(map(max, zip(*folded, strict=True)))


def _height_of_blocks(columns: Sequence[_Column]) -> int:
    return sum(1 + sum(map(bool, row)) for row in zip(*(one.cells for one in columns), strict=True))


def _lines(text: str, width: int) -> int:
    return sum(max(1, -(-_width(line) // width)) for line in text.split("\n"))


def _table(columns: Sequence[_Column], widths: Sequence[int]) -> "RenderableType":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, _GAP - 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold"
    )
    for column, width in zip(columns, widths, strict=True):
        table.add_column(Text(column.head), justify=column.justify, width=width, overflow="fold")
    for row in zip(*(one.cells for one in columns), strict=True):
        table.add_row(*(Text(_broken(cell, width)) for cell, width in zip(row, widths, strict=True)))
    return table


def _broken(text: str, width: int) -> str:
    """With long words in lines of their own that end behind a dot, a dash or the like, if they can."""
    if _width(text) <= width:
        return text
    words = ("".join(_pieces(word, width)) for word in text.split(" "))
    return " ".join(words)


def _pieces(word: str, width: int) -> Iterator[str]:
    used = 0
    for piece in _BREAKS.split(word) if _width(word) > width else [word]:
        if used and used + _width(piece) > width:
            yield "\n"
            used = 0
        yield piece
        used = (used + _width(piece)) % width


def _blocks(columns: Sequence[_Column]) -> "RenderableType":
    from rich.console import Group

    blocks: list[RenderableType] = []
    for row in zip(*(one.cells for one in columns), strict=True):
        blocks += [_facts([(one.head, cell) for one, cell in zip(columns, row, strict=True) if cell]), ""]
    return Group(*blocks[:-1])


def _facts(facts: Sequence[tuple[str, str]]) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in facts:
        grid.add_row(Text(name), Text(text))
    return grid


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
