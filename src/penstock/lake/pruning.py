"""Which files a question about one message needs: those that may hold its id, and no other."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.lake.manifest import DataFile, Snapshot

_MESSAGES = "raw"


class Asked(NamedTuple):
    """A table, or a topic, and the id that rows must have."""

    table: str
    id: str


def holding(state: Snapshot, asked: Asked) -> Snapshot:
    """The lake without the files that cannot hold such a row."""
    kept = {path: file for path, file in state.files.items() if file.may_hold("id", asked.id)}
    if not any(_is_of(file, asked.table) for file in kept.values()):
        # A table without any file has no columns, and a query of it would fail.
        of_it = [file for file in state.files.values() if _is_of(file, asked.table)]
        kept |= {file.path: file for file in sorted(of_it, key=lambda file: file.size)[:1]}
    return msgspec.structs.replace(state, files=kept)


def _is_of(file: DataFile, table: str) -> bool:
    """Whether the file has rows of a table; by the name of a topic, those of its messages are meant."""
    names = [file.table, *([file.partition.get("topic", "")] if file.table == _MESSAGES else [])]
    return table.casefold() in map(str.casefold, names)


def asked(tree: str) -> Asked | None:
    """The one table of a query, and the id that each of its rows must have; None unless that is certain.

    `tree` is the query as DuckDB's `json_serialize_sql` writes it. It must read one table, once, and demand
    `id = '...'` of it, at the top of its WHERE or joined to the rest by AND.
    """
    parsed = msgspec.json.decode(tree)
    statements = parsed.get("statements", ())
    if parsed.get("error") or len(statements) != 1:
        return None
    node = statements[0]["node"]
    read = [part for part in _parts(parsed) if part.get("type") == "BASE_TABLE"]
    table = node.get("from_table")
    # A table that is read a second time, say below the SELECT, may be read for other rows.
    if node.get("type") != "SELECT_NODE" or read != [table] or table.get("column_name_alias") != []:
        return None
    names = [table.get("alias") or table.get("table_name"), "id"]
    ids = [id for part in _demanded(node.get("where_clause")) if (id := _wanted(part, names)) is not None]
    return Asked(table["table_name"], ids[0]) if ids else None


def _parts(tree: Any) -> "Iterator[Mapping[str, Any]]":
    if isinstance(tree, dict):
        yield tree
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _parts(part)


def _demanded(condition: "Mapping[str, Any] | None") -> "Iterator[Mapping[str, Any]]":
    if condition is None:
        return
    if condition.get("type") == "CONJUNCTION_AND":
        for part in condition["children"]:
            yield from _demanded(part)
    else:
        yield condition


def _wanted(condition: "Mapping[str, Any]", names: Sequence[str]) -> str | None:
    if condition.get("type") != "COMPARE_EQUAL":
        return None
    sides = (condition["left"], condition["right"])
    columns = [side["column_names"] for side in sides if side.get("type") == "COLUMN_REF"]
    values = [literal for side in sides if (literal := side.get("literal")) and literal.get("kind") == "STRING"]
    if columns not in ([names], [names[1:]]) or len(values) != 1:
        return None
    found: str = values[0]["text"]
    return found
