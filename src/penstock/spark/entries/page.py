"""One XRANGE reply, read: by offsets where that is proven, else by the general parser."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.backend.redis.blocking import parse_reply
from penstock.spark.entries.resp import Bytes, Group, find_entries
from penstock.spark.entries.vectors import binary

Entry = tuple[bytes, Sequence[bytes]]
"""An entry's id, and its fields and values, alternating."""


class Page:
    """The entries of a reply, in order. `groups` is None where only the general parser could read it."""

    def __init__(self, reply: Bytes) -> None:
        self.reply = reply
        self.groups = find_entries(reply)
        self._entries: list[Any] = parse_reply(reply.tobytes()) if self.groups is None else []
        self.count = len(self._entries) if self.groups is None else sum(len(group.rows) for group in self.groups)

    @property
    def last_id(self) -> str:
        if self.groups is None:
            return bytes(self._entries[-1][0]).decode()
        group = max(self.groups, key=lambda group: int(group.rows[-1]))
        return bytes(self.reply[group.ids.starts[-1] : group.ids.ends[-1]]).decode()

    def ids(self) -> pa.Array:
        """The id of every entry, as text."""
        if self.groups is None:
            return pa.array([entry_id.decode() for entry_id, _ in self._entries], pa.string())
        parts = [binary(self.reply, group.ids) for group in self.groups]
        if len(parts) == 1:
            return parts[0].cast(pa.string())
        order = np.argsort(np.concatenate([group.rows for group in self.groups]))
        return pa.concat_arrays(parts).take(pa.array(order)).cast(pa.string())

    def entries(self) -> Iterator[Entry]:
        """All of them, of a page without groups."""
        yield from self._entries

    def entry(self, group: Group, at: int) -> Entry:
        """One entry of a group."""
        fields: list[bytes] = []
        for name, (starts, ends) in zip(group.names, group.values, strict=True):
            fields += (name, self.reply[starts[at] : ends[at]].tobytes())
        return self.reply[group.ids.starts[at] : group.ids.ends[at]].tobytes(), fields
