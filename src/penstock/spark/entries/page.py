"""One XRANGE reply, read: by offsets where that is proven, else by the general parser."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.backend.redis.blocking import NOT_PROTOCOL, parse_reply
from penstock.errors import ServerUnreachableError
from penstock.spark.entries.resp import Bytes, Shape, find_entries
from penstock.spark.entries.vectors import binary

Entry = tuple[bytes, Sequence[bytes]]
"""An entry's id, and its fields and values, alternating."""


class Page:
    """The entries of a reply, in order. `shapes` is None where only the general parser could read it.

    `ServerUnreachableError`, which begins with `doing`, if the reply is no list of entries.
    """

    def __init__(self, reply: Bytes, doing: str = "reading a page") -> None:
        self.reply = reply
        self.shapes = find_entries(reply)
        self._entries = _parse(reply, doing) if self.shapes is None else []
        self.count = len(self._entries) if self.shapes is None else sum(len(shape.rows) for shape in self.shapes)

    @property
    def last_id(self) -> str:
        if self.shapes is None:
            return self._entries[-1][0].decode()
        shape = max(self.shapes, key=lambda shape: int(shape.rows[-1]))
        return bytes(self.reply[shape.ids.starts[-1] : shape.ids.ends[-1]]).decode()

    def ids(self) -> pa.Array:
        """The id of every entry, as text."""
        if self.shapes is None:
            return pa.array([entry_id.decode() for entry_id, _ in self._entries], pa.string())
        parts = [binary(self.reply, shape.ids) for shape in self.shapes]
        if len(parts) == 1:
            return parts[0].cast(pa.string())
        order = np.argsort(np.concatenate([shape.rows for shape in self.shapes]))
        return pa.concat_arrays(parts).take(pa.array(order)).cast(pa.string())

    def entries(self) -> Iterator[Entry]:
        """All of them, of a page without shapes."""
        yield from self._entries

    def entry(self, shape: Shape, at: int) -> Entry:
        """One entry of a shape."""
        fields: list[bytes] = []
        for name, (starts, ends) in zip(shape.names, shape.values, strict=True):
            fields += (name, self.reply[starts[at] : ends[at]].tobytes())
        return self.reply[shape.ids.starts[at] : shape.ids.ends[at]].tobytes(), fields


def _parse(reply: Bytes, doing: str) -> list[Entry]:
    entries: Any = parse_reply(reply.tobytes(), doing)
    if not isinstance(entries, list) or not all(map(_is_entry, entries)):
        raise ServerUnreachableError(f"{doing}: {NOT_PROTOCOL}, or no entries of a stream")
    return entries


def _is_entry(found: Any) -> bool:
    match found:
        case [bytes(), [*fields]]:
            return len(fields) % 2 == 0 and all(isinstance(field, bytes) for field in fields)
    return False
