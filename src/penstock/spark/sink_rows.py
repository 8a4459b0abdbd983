"""Rows on their way into streams: some of one stream, as the words of a request, whatever their layout was.

What cannot become an entry is refused with `EncodeError` before anything of its window is sent. A null is an absent
field, and a row becomes the same bytes wherever in a batch it stands.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.backend import keys
from penstock.errors import EncodeError
from penstock.spark.sink_words import Column, as_binary, joined_rows, regrouped, word, words

ABOUT_ROWS = frozenset({"stream", "entry_id", "ts", "_corrupt"})
"""Columns that the source makes and that are no field of an entry."""
MOST_FIELDS = 1000
_WINDOW_BYTES = 1 << 20


@dataclass(frozen=True)
class Rows:
    """Some rows of one stream, in order."""

    stream: str
    counts: "np.ndarray[Any, Any]"
    """How many fields and values each row has."""
    entries: Column
    """Each row's fields and values as words."""
    ids: Column | None = None
    entry_ids: Column | None = None

    @classmethod
    def of(cls, stream: str, window: Any, fields: "Sequence[tuple[bytes, Column | None]]") -> Self:
        """Rows with these fields, each a column of values; a null leaves the field out."""
        present = [(name, values) for name, values in fields if values is not None and values.null_count < len(values)]
        counts = np.zeros(window.num_rows, dtype=np.int64)
        for _, values in present:
            counts += 2 if values.null_count == 0 else 2 * values.is_valid().to_numpy(zero_copy_only=False)
        entries = joined_rows([words(values, name) for name, values in present]) if present else pa.nulls(len(counts))
        return cls(stream, counts, entries, column(window, "id"), column(window, "entry_id")).checked()

    def __len__(self) -> int:
        return len(self.counts)

    def slice(self, start: int, stop: int | None = None) -> "Rows":
        counts = self.counts[start:stop]
        ids, entry_ids = (None if one is None else one.slice(start, len(counts)) for one in (self.ids, self.entry_ids))
        return Rows(self.stream, counts, self.entries.slice(start, len(counts)), ids, entry_ids)

    def counted(self) -> Column:
        """Each row as the words that a script takes: how many, and then these."""
        if len(self) and self.counts.min() == self.counts.max():
            return joined_rows([word(int(self.counts[0])), self.entries])
        return joined_rows([words(pa.array(self.counts)), self.entries])

    def checked(self) -> Self:
        if len(self) and (self.counts.min() == 0 or self.counts.max() > 2 * MOST_FIELDS):
            problem = "no field at all" if self.counts.min() == 0 else f"more than {MOST_FIELDS} fields"
            raise EncodeError(f"a row for {self.stream!r} has {problem}: an entry has from 1 to {MOST_FIELDS}")
        return self


def windows(batch: Any, topic: str | None, most: int) -> "Iterator[tuple[str, Any]]":
    """The batch in pieces of at most `most` rows and about a megabyte, each for one stream, order kept per stream."""
    per_window = max(1, min(most, int(_WINDOW_BYTES * batch.num_rows / max(batch.nbytes, 1))))
    for stream, part in _by_stream(batch, topic):
        for start in range(0, part.num_rows, per_window):
            yield stream, part.slice(start, per_window)


def _by_stream(batch: Any, topic: str | None) -> "Iterator[tuple[str, Any]]":
    if topic is not None:
        yield topic, batch
        return
    streams = batch.column("stream")
    if streams.null_count:
        raise EncodeError("a row has no stream: fill the column `stream`, or name the stream by option `topic`")
    for stream in pc.unique(streams).to_pylist():
        keys.check_topic(stream)
        yield stream, batch.filter(pc.equal(streams, stream))


def flat(stream: str, window: Any) -> Rows:
    """Every column a field: texts and bytes as they are, numbers and truth values as their text."""
    names = [name for name in window.schema.names if name not in ABOUT_ROWS]
    return Rows.of(stream, window, [(name.encode(), as_binary(window.column(name))) for name in names])


def raw(stream: str, window: Any) -> Rows:
    """The map `fields` is the entry."""
    fields = window.column("fields")
    offsets = np.frombuffer(fields.buffers()[1], dtype=np.int32)[fields.offset : fields.offset + len(fields) + 1]
    size = int(offsets[-1] - offsets[0])
    names, values = (part.slice(int(offsets[0]), size) for part in (fields.keys, fields.items))
    if fields.null_count or values.null_count:
        raise EncodeError(f"a row for {stream!r} has a null in its map of fields: leave the field out instead")
    entries = regrouped(joined_rows([words(names), words(values)]), offsets)
    ids, entry_ids = column(window, "id"), column(window, "entry_id")
    return Rows(stream, 2 * np.diff(offsets), entries, ids, entry_ids).checked()


def column(window: Any, name: str) -> Column | None:
    """The bytes of a column, or None where there is no such column."""
    return as_binary(window.column(name)) if name in window.schema.names else None
