"""Where the known fields of an entry are. Entries of a stream are alike, so the answer is remembered by field names."""

from collections.abc import Sequence

from penstock.message import fields as f
from penstock.message.faults import Unreadable
from penstock.options import Limits

_REMEMBERED = 256
_LONGEST_REMEMBERED = 4096


class Layouts:
    """Finds `names` in entries. For every dialect the version field is checked, and unknown fields are ignored."""

    def __init__(self, names: Sequence[bytes], limits: Limits) -> None:
        self._names = tuple(names)
        self._most = limits.fields
        self._known: dict[tuple[bytes, ...], tuple[int, ...]] = {}

    def of(self, fields: Sequence[bytes]) -> tuple[int, ...]:
        """The index of the value of each name, in the order given; 0 (never a value's index) for those absent."""
        layout = self._known.get(tuple(fields[::2]))
        if layout is None or len(fields) & 1:
            return self._locate(fields)
        return layout

    def _locate(self, fields: Sequence[bytes]) -> tuple[int, ...]:
        names = tuple(fields[::2])
        self._refuse(names, fields)
        layout = tuple(2 * names.index(name) + 1 if name in names else 0 for name in self._names)
        if f.VERSION in names:
            # Its value must be looked at every time, so the layout is not remembered.
            version = fields[2 * names.index(f.VERSION) + 1]
            if version != b"1":
                raise Unreadable(f"wire version {version[:20]!r}: written by a newer version of Penstock")
            return layout
        # Names are the writer's choice: whoever varies them may make us compute, not grow.
        if sum(map(len, names)) > _LONGEST_REMEMBERED:
            return layout
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[names] = layout
        return layout

    def _refuse(self, names: tuple[bytes, ...], fields: Sequence[bytes]) -> None:
        if len(fields) & 1:
            raise Unreadable("a field has no value")
        if not names:
            raise Unreadable("no fields: the entry was deleted or trimmed")
        if len(names) > self._most:
            raise Unreadable(f"{len(names)} fields, the limit is {self._most}")
        for name in (*self._names, f.VERSION):
            if names.count(name) > 1:
                raise Unreadable(f"field {name.decode()!r} occurs more than once")
