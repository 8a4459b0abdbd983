"""What a topic's payloads hold, and which columns that makes. Pure data; `learning` finds it out.

Each top-level field of the payloads has a column of its name, of the type that it had first. Values of another type go
into a column beside it, `total__text` beside `total`, so that none is lost. Kinds of values, and their columns:

text     VARCHAR
flag     BOOLEAN
whole    BIGINT
number   DOUBLE: with a fraction or an exponent
long     BIGINT: a whole number beyond 2^53, which a DOUBLE would not hold exactly
digits   VARCHAR: a whole number beyond BIGINT
json     JSON: an object or an array

A BIGINT becomes a DOUBLE when the first fraction comes, unless a number was in it that a DOUBLE cannot hold: then the
fractions go beside. What is null has no type, and makes no column.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct, structs

MOST_COLUMNS = 1000
NULL = "null"
TYPES = {
    "text": "VARCHAR",
    "flag": "BOOLEAN",
    "whole": "BIGINT",
    "number": "DOUBLE",
    "long": "BIGINT",
    "digits": "VARCHAR",
    "json": "JSON",
}


class Column(Struct, frozen=True):
    """One column of a topic's table."""

    name: str
    field: str
    kind: str
    takes: tuple[str, ...]
    """The kinds of the field's values that are in it."""

    first: str
    """The day of the first message that had such a value."""

    @property
    def type(self) -> str:
        """As DuckDB calls it."""
        return TYPES[self.kind]


class Contents(Struct, frozen=True):
    """What one file holds: by field and kind, in how many rows."""

    fields: dict[str, dict[str, int]] = {}
    left_out: int = 0
    """Values of fields beyond those that are listed."""


class Schema(Struct, frozen=True):
    """What is known of a topic's payloads from the files that were looked at."""

    topic: str
    columns: tuple[Column, ...] = ()
    files: dict[str, Contents] = {}
    """By path."""

    @property
    def left_out(self) -> int:
        """How many values are in no column, because there are too many fields; they are in `payload`."""
        taken = {(column.field, kind) for column in self.columns for kind in column.takes}
        listed = sum(rows for name, kind, rows in self._counted() if kind != NULL and (name, kind) not in taken)
        return listed + sum(contents.left_out for contents in self.files.values())

    def rows(self, column: Column) -> int:
        """In how many rows it is not null."""
        return sum(rows for name, kind, rows in self._counted() if name == column.field and kind in column.takes)

    def untyped(self) -> dict[str, int]:
        """Fields that were null wherever they were, and in how many rows."""
        typed = {column.field for column in self.columns}
        found: dict[str, int] = {}
        for name, kind, rows in self._counted():
            if kind == NULL and name not in typed:
                found[name] = found.get(name, 0) + rows
        return found

    def _counted(self) -> Iterator[tuple[str, str, int]]:
        for contents in self.files.values():
            for name, kinds in contents.fields.items():
                for kind, rows in kinds.items():
                    yield name, kind, rows


@dataclass(frozen=True)
class Sighting:
    """That a field was there with a value of this kind."""

    field: str
    kind: str
    first: str
    """The day of it."""


def grown(
    schema: Schema, files: Mapping[str, Contents], sightings: Iterable[Sighting], reserved: Iterable[str]
) -> Schema:
    """The schema with what was seen in these files too; `sightings` come in the order of time.

    Columns that are there stay, under their names. `reserved` are names that no field can have.
    """
    columns = _Columns(list(schema.columns), {name.casefold() for name in reserved})
    for name, kinds in ((name, kinds) for contents in schema.files.values() for name, kinds in contents.fields.items()):
        columns.seen.setdefault(name, set()).update(kinds)
    for sighting in sightings:
        columns.add(sighting)
    return structs.replace(schema, columns=columns.by_field(), files={**schema.files, **files})


@dataclass
class _Columns:
    columns: list[Column]
    reserved: set[str]
    seen: dict[str, set[str]] = field(default_factory=dict)
    """By field, the kinds that it had so far."""

    def add(self, sighting: Sighting) -> None:
        mine = [column for column in self.columns if column.field == sighting.field]
        if sighting.kind != NULL and not any(sighting.kind in column.takes for column in mine):
            self._make_room(sighting, mine)
        self.seen.setdefault(sighting.field, set()).add(sighting.kind)

    def by_field(self) -> tuple[Column, ...]:
        """Fields in the order in which they came, each with all of its columns."""
        places: dict[str, int] = {}
        for column in self.columns:
            places.setdefault(column.field, len(places))
        return tuple(sorted(self.columns, key=lambda column: places[column.field]))

    def _make_room(self, sighting: Sighting, mine: Sequence[Column]) -> None:
        whole = next((column for column in mine if column.kind == "whole"), None)
        if sighting.kind == "number" and whole is not None and "long" not in self.seen.get(sighting.field, ()):
            wider = structs.replace(whole, kind="number", takes=("number", "whole"))
            self.columns[self.columns.index(whole)] = wider
        elif len(self.columns) < MOST_COLUMNS:
            kind, takes = _place(sighting.kind, mine)
            self.columns.append(Column(self._name(sighting), sighting.field, kind, takes, sighting.first))

    def _name(self, sighting: Sighting) -> str:
        """The field's own, if nothing else has it in any case; DuckDB does not tell `Total` from `total`."""
        taken = self.reserved | {column.name.casefold() for column in self.columns}
        own = "".join(letter if letter.isprintable() else "_" for letter in sighting.field)
        beside = f"{own}__{'whole' if sighting.kind == 'long' else sighting.kind}"
        for name in (own, beside):
            if name and name.casefold() not in taken:
                return name
        number = 2
        while f"{beside}_{number}".casefold() in taken:
            number += 1
        return f"{beside}_{number}"


def _place(kind: str, mine: Sequence[Column]) -> tuple[str, tuple[str, ...]]:
    """What column a field needs for its first value of a kind."""
    if kind in ("whole", "long") and not any("whole" in column.takes for column in mine):
        return "whole", ("whole", "long")
    if kind == "number" and not any("whole" in column.takes for column in mine):
        return "number", ("number", "whole")
    return kind, (kind,)
