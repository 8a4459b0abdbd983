"""Which columns a stream can be read as: the envelope of a message, its raw fields, or one column per field."""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from penstock.errors import ConfigurationError

LAYOUTS = ("envelope", "raw", "flat")
CORRUPT = "_corrupt"
"""Why an entry could not be read, in mode `permissive`; null in every other row."""
UNREAD = "_raw"
"""The fields and values of such an entry, alternating, as they are; null in every other row. Not there unasked."""

_TEXT, _TIME = StringType(), TimestampType()
_PLACE: dict[str, DataType] = {"stream": _TEXT, "entry_id": _TEXT, "ts": _TIME}
PLACE = frozenset(_PLACE)
"""Columns that need no look into the entry."""

_ENVELOPE: dict[str, DataType] = {
    **_PLACE,
    "id": _TEXT,
    "type": _TEXT,
    "key": _TEXT,
    "headers": MapType(_TEXT, _TEXT),
    "traceparent": _TEXT,
    "tracestate": _TEXT,
    "time": _TIME,
    "payload": _TEXT,
    CORRUPT: _TEXT,
}
_RAW: dict[str, DataType] = {**_PLACE, "fields": MapType(_TEXT, BinaryType())}
_KNOWN = {
    "envelope": {**_ENVELOPE, UNREAD: ArrayType(BinaryType())},
    "raw": {**_RAW, CORRUPT: _TEXT},
    "flat": {**_PLACE, CORRUPT: _TEXT},
}
_FLAT_KINDS = (StringType, BinaryType, LongType, DoubleType, BooleanType)
_SCALARS = (
    StringType, BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DateType,
    TimestampType,
)  # fmt: skip


def default_schema(layout: str) -> StructType:
    """The columns of a layout when the user names none; `flat` has no such thing, because its fields are unknown."""
    if layout == "flat":
        raise ConfigurationError(
            "layout=flat makes one column of each field you name: add .schema('entry_id string, field string, ...')"
        )
    columns = _ENVELOPE if layout == "envelope" else _RAW
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def archived_schema() -> StructType:
    """Everything that can be known of an entry, whether it is a message or not."""
    return StructType([StructField(name, kind) for name, kind in _KNOWN["envelope"].items()])


def check_schema(schema: StructType, layout: str) -> None:
    """Refuse a user's schema that a layout cannot fill, naming the column and what it may be."""
    seen = set()
    for field in schema.fields:
        if field.name in seen:
            raise ConfigurationError(f"the schema names the column {field.name!r} twice")
        seen.add(field.name)
        _check_column(field, layout)
    if not schema.fields:
        raise ConfigurationError("the schema has no column: name at least one, like 'entry_id string'")


def _check_column(field: StructField, layout: str) -> None:
    name, kind = field.name, field.dataType
    if not field.nullable:
        raise ConfigurationError(f"column {name!r} is declared NOT NULL: entries may lack any value, so leave that out")
    known = _KNOWN[layout]
    expected = known.get(name)
    if expected is None and layout != "flat":
        raise ConfigurationError(f"layout={layout} has no column {name!r}: choose among {', '.join(known)}")
    if expected is None:
        fits, wanted = isinstance(kind, _FLAT_KINDS), "string, binary, bigint, double or boolean"
    elif name == "payload":
        fits, wanted = kind == expected or _can_be_payload(kind), "string, binary, variant, or a struct of JSON types"
    else:
        fits, wanted = kind == expected, expected.simpleString()
    if not fits:
        raise ConfigurationError(f"column {name!r} cannot be {kind.simpleString()}: it must be {wanted}")


def _can_be_payload(kind: DataType) -> bool:
    return isinstance(kind, (BinaryType, VariantType)) or (isinstance(kind, StructType) and _is_json(kind))


def _is_json(kind: DataType) -> bool:
    """Whether values of this type can be filled from JSON."""
    if isinstance(kind, StructType):
        return bool(kind.fields) and all(field.nullable and _is_json(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return kind.containsNull and _is_json(kind.elementType)
    if isinstance(kind, MapType):
        return kind.valueContainsNull and isinstance(kind.keyType, StringType) and _is_json(kind.valueType)
    return isinstance(kind, _SCALARS)
