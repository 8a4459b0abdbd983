"""Rows on their way into streams: some of one stream, as the words of a request, whatever their layout was.

What cannot become an entry is refused with `EncodeError` before anything of its window is sent. A null is an absent
field, and a row becomes the same bytes wherever in a batch it stands.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.backend import keys
from penstock.errors import EncodeError
from penstock.spark.sink.words import Column, as_binary, flowing, in_words, joined_rows, regrouped, word, words

ABOUT_ROWS = frozenset({"stream", "entry_id", "ts", "_corrupt"})
"""Columns that the source makes and that are no field of an entry."""
MOST_FIELDS = 1000
_MOST_NAMED = 50  # a function of Lua has room for 200 names and words
_WINDOW_BYTES = 1 << 20


@dataclass(frozen=True)
class Rows:
    """Some rows of one stream, in order."""

    stream: str
    counts: "np.ndarray[Any, Any]"
    """How many fields and values each row has."""
    fields: "Mapping[bytes, Column]" = field(default_factory=dict)
    """The values of each field as bytes, null where a row does not have it; empty if `whole` is given."""
    whole: Column | None = None
    """Each row's fields and values as words."""
    ids: Column | None = None
    entry_ids: Column | None = None

    @classmethod
    def of(cls, stream: str, window: Any, columns: "Sequence[tuple[bytes, Column | None]]") -> Self:
        """Rows with these fields, each a column of values; a null leaves the field out."""
        counts = np.zeros(window.num_rows, dtype=np.int64)
        fields = {}
        for name, values in columns:
            if values is not None and values.null_count < len(values):
                fields[name] = as_binary(values)
                counts += 2 if values.null_count == 0 else 2 * values.is_valid().to_numpy(zero_copy_only=False)
        ids, entry_ids = column(window, "id"), column(window, "entry_id")
        return cls(stream, counts, fields, ids=ids, entry_ids=entry_ids).checked()

    def __len__(self) -> int:
        return len(self.counts)

    def slice(self, start: int, stop: int | None = None) -> "Rows":
        counts = self.counts[start:stop]
        cut = functools.partial(_cut, start=start, length=len(counts))
        fields = {name: values.slice(start, len(counts)) for name, values in self.fields.items()}
        return Rows(self.stream, counts, fields, cut(self.whole), cut(self.ids), cut(self.entry_ids))

    def take(self, places: "Sequence[int]") -> "Rows":
        """The rows at these places."""
        chosen = pa.array(places, pa.int64())
        whole, ids, entry_ids = (
            None if column is None else column.take(chosen) for column in (self.whole, self.ids, self.entry_ids)
        )
        fields = {name: values.take(chosen) for name, values in self.fields.items()}
        return Rows(self.stream, self.counts[places], fields, whole, ids, entry_ids)

    def with_field(self, name: bytes, values: Column) -> "Rows":
        """The rows with one more field, the last; each has a value."""
        return dataclasses.replace(self, counts=self.counts + 2, fields={**self.fields, name: values})

    @cached_property
    def entries(self) -> Column:
        """Each row's fields and values as words."""
        if self.whole is not None:
            return self.whole
        return joined_rows(self._pieces())

    @cached_property
    def appends(self) -> Column:
        """For each row the request that appends it: the same bytes in whatever window the row comes."""
        head = [b"XADD", self.stream.encode(), *([] if keys.may_create(self.stream) else [b"NOMKSTREAM"]), b"*"]
        start, counts = b"".join(map(word, head)), self.counts + len(head)
        if counts.min() == counts.max():
            return joined_rows([b"*%d\r\n" % counts[0], start, *self._pieces()])
        return joined_rows([b"*", as_binary(pa.array(counts)), b"\r\n", start, *self._pieces()])

    def _pieces(self) -> "list[Column | bytes]":
        if self.whole is not None:
            return [self.whole]
        return [piece for name, values in self.fields.items() for piece in _named(name, values)]

    @cached_property
    def names(self) -> tuple[bytes, ...]:
        """The fields that every row has, if all have the same few; else none."""
        same = len(self.fields) <= _MOST_NAMED and not any(values.null_count for values in self.fields.values())
        return tuple(self.fields) if same else ()

    def for_script(self) -> tuple[list[memoryview], int]:
        """The rows as a script takes them, and how many words that is: if all have the same `names`, only the values,
        name by name; else for each row how many words it has, and these."""
        if self.names:
            return [flowing(words(values)) for values in self.fields.values()], len(self.names) * len(self)
        return [flowing(self.counted())], int(self.counts.sum()) + len(self)

    def counted(self) -> Column:
        """For each row how many words it has, and these."""
        if len(self) and self.counts.min() == self.counts.max():
            return joined_rows([word(int(self.counts[0])), self.entries])
        return joined_rows([words(pa.array(self.counts)), self.entries])

    def checked(self) -> Self:
        if len(self) and (self.counts.min() == 0 or self.counts.max() > 2 * MOST_FIELDS):
            problem = "no field at all" if self.counts.min() == 0 else f"more than {MOST_FIELDS} fields"
            raise EncodeError(f"a row for {self.stream!r} has {problem}: an entry has from 1 to {MOST_FIELDS}")
        return self


def _cut(values: Column | None, start: int, length: int) -> Column | None:
    return None if values is None else values.slice(start, length)


def _named(name: bytes, values: Column) -> "list[Column | bytes]":
    """The word of the name before the word of each value, in pieces to be joined."""
    pieces = [word(name), *in_words(values)]
    return pieces if values.null_count == 0 else [pc.fill_null(joined_rows(pieces), b"")]


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
    entries = regrouped(joined_rows([*in_words(names), *in_words(values)]), offsets)
    ids, entry_ids = column(window, "id"), column(window, "entry_id")
    return Rows(stream, 2 * np.diff(offsets), whole=entries, ids=ids, entry_ids=entry_ids).checked()


def column(window: Any, name: str) -> Column | None:
    """The bytes of a column, or None where there is no such column."""
    return as_binary(window.column(name)) if name in window.schema.names else None
