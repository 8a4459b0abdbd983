"""Whether rows with other columns fit into a table that is there: readers take all files of a table as one."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lake.lake import Lake

_Type = Any


def conflict(lake: Lake, table: str, schema: pa.Schema) -> str:
    """Why rows of this schema would make a table of the lake unreadable; empty if they would not.

    Columns may come, go, and change between kinds of numbers, or between a text and any plain value.
    """
    files = lake.snapshot().of(table)
    if not files:
        return ""
    there = pq.read_schema(lake.path / files[-1].path)  # the one of the last day
    for field in schema:
        at = there.get_field_index(field.name)
        if at >= 0 and not _fit(there.field(at).type, field.type):
            return f"column {field.name!r} is {there.field(at).type} in the lake, and {field.type} now"
    return ""


def _fit(one: _Type, other: _Type) -> bool:
    if pa.types.is_null(one) or pa.types.is_null(other):
        return True
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        names = {one.field(at).name for at in range(one.num_fields)}
        shared = names & {other.field(at).name for at in range(other.num_fields)}
        return all(_fit(one.field(name).type, other.field(name).type) for name in shared)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _fit(one.value_type, other.value_type)
    if pa.types.is_map(one) and pa.types.is_map(other):
        return _fit(one.key_type, other.key_type) and _fit(one.item_type, other.item_type)
    kinds = {_kind(one), _kind(other)}
    return len(kinds) == 1 or ("text" in kinds and kinds <= {"text", "number", "time"})


def _kind(type: _Type) -> str:
    """What it can be read together with; nested types with nothing of another kind."""
    if (
        pa.types.is_boolean(type)
        or pa.types.is_integer(type)
        or pa.types.is_floating(type)
        or pa.types.is_decimal(type)
    ):
        return "number"
    if pa.types.is_temporal(type):
        return "time"
    return "text" if pa.types.is_string(type) or pa.types.is_large_string(type) else str(type)
