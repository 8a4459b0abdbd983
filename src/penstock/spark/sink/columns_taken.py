"""Which columns a sink takes, by layout and delivery: checked when the write is planned, their nulls when it runs."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import types as t

from penstock.errors import ConfigurationError, EncodeError
from penstock.spark.options.sink import SinkOptions
from penstock.spark.sink.deliveries import MODES
from penstock.spark.sink.rows import ABOUT_ROWS

_Fits = Callable[[t.DataType], bool]
_TEXT: tuple[str, _Fits] = ("string", lambda kind: isinstance(kind, t.StringType))
_BYTES: tuple[str, _Fits] = ("string or binary", lambda kind: isinstance(kind, t.StringType | t.BinaryType))
_MOMENT: tuple[str, _Fits] = ("timestamp", lambda kind: isinstance(kind, t.TimestampType))
_HEADERS: tuple[str, _Fits] = ("map<string,string>", lambda kind: _is_map(kind, t.StringType))
_FIELDS: tuple[str, _Fits] = (
    "map<string,binary> or map<string,string>",
    lambda kind: _is_map(kind, t.StringType, t.BinaryType),
)
_VALUE: tuple[str, _Fits] = (
    "string, binary, boolean, an integer or a floating-point number",
    lambda kind: (
        isinstance(kind, t.StringType | t.BinaryType | t.BooleanType | t.IntegralType | t.FractionalType)
        and not isinstance(kind, t.DecimalType)
    ),
)
_ANY: tuple[str, _Fits] = ("anything", lambda kind: True)
_ABOUT = {"stream": _TEXT, "entry_id": _TEXT, "ts": _MOMENT, "_corrupt": _TEXT}
_ENVELOPE = {
    **dict.fromkeys(("id", "type", "key", "traceparent", "tracestate"), _TEXT),
    "payload": _BYTES,
    "headers": _HEADERS,
    "time": _MOMENT,
}
_STAMPED = ("job", "enveloped")
"""Dialects that write the time of writing where a message has none."""


_WHAT_ELSE = {
    "stream": " (it names each row's stream if there is no option topic)",
    "entry_id": " (delivery=explicit_id writes each row under it)",
    "_corrupt": " (rows in which it is filled could not be read: filter them first)",
}


def check_columns(schema: t.StructType, options: SinkOptions) -> None:
    """Raises `ConfigurationError`, which names the column and what it must be."""
    for name, why in _needed(options).items():
        if name not in schema.names:
            raise ConfigurationError(f"the penstock sink needs a column {name!r}: {why}; there are {_names(schema)}")
    if options.layout == "flat":
        _check_flat(schema, options)
    known = _known(schema, options)
    for field in schema.fields:
        accepted, fits = known.get(field.name, ("", None))
        if fits is None:
            raise ConfigurationError(
                f"the penstock sink with layout={options.layout} has no use for column {field.name!r}: drop it, or"
                f" write layout=flat; it takes {', '.join(known)}"
            )
        if not fits(field.dataType):
            kind = field.dataType.simpleString()
            raise ConfigurationError(f"column {field.name!r} is {kind}, but the penstock sink takes {accepted} there")


def _check_flat(schema: t.StructType, options: SinkOptions) -> None:
    """In this layout a column may be the user's own whatever its name, so none is left out without a word."""
    used = {"stream"} if options.topic is None else set()
    used |= {"entry_id"} if options.delivery == "explicit_id" else {options.ordered_by or ""}
    for name in schema.names:
        if name in ABOUT_ROWS - used:
            raise ConfigurationError(
                f"layout=flat does not write a column {name!r}, a name that the source uses for what is no field of an"
                f" entry{_WHAT_ELSE.get(name, '')}: drop or rename it"
            )
    if not set(schema.names) - ABOUT_ROWS:
        raise ConfigurationError(f"layout=flat writes columns as fields, but there are only {_names(schema)}")


def check_values(batch: Any, needed: Sequence[str]) -> None:
    """Refuse rows that the source could not read, and nulls where a value is needed; raises `EncodeError`."""
    names = batch.schema.names
    if "_corrupt" in names and batch.column("_corrupt").null_count < batch.num_rows:
        reasons = batch.column("_corrupt")
        row = pc.index(reasons.is_valid(), True).as_py()
        raise EncodeError(
            f"a row{_entry(batch, row)} has its column '_corrupt' filled and cannot be written: {reasons[row].as_py()};"
            " leave such rows out (filter('_corrupt is null'), or mode=dropmalformed of the source)"
        )
    for name in needed:
        if batch.column(name).null_count:
            row = pc.index(batch.column(name).is_null(), True).as_py()
            raise EncodeError(
                f"a row{_entry(batch, row)} has a null in column {name!r}, where this delivery needs a value in every"
                " row; if it comes from the source, the entry could not be read: mode=dropmalformed leaves such out"
            )


def _entry(batch: Any, row: int) -> str:
    """Which entry a row comes from, as far as its columns tell."""
    given = {name: batch.column(name)[row].as_py() for name in ("entry_id", "stream") if name in batch.schema.names}
    entry = f", entry {given['entry_id']}" if given.get("entry_id") else ""
    return entry + (f" of {given['stream']!r}" if entry and given.get("stream") else "")


def needed_values(options: SinkOptions) -> list[str]:
    """Columns in which every row must have a value."""
    return [name for name in _needed(options) if name in ("id", "entry_id", "time", options.ordered_by)]


def _needed(options: SinkOptions) -> dict[str, str]:
    mode, spoken = MODES[options.delivery], options.layout == "envelope"
    needed = {"payload": "a message's JSON"} if spoken else {}
    if options.layout == "raw":
        needed["fields"] = "layout=raw writes this map"
    if options.topic is None:
        needed["stream"] = "it names each row's stream, unless the option topic does"
    if mode.needs_id or (spoken and mode.needs_same_bytes):
        needed["id"] = (
            f"delivery={options.delivery} knows a row again by it, so it must be the same in each attempt (if there is"
            " none, delivery=at_least_once makes one)"
        )
    if options.delivery == "explicit_id":
        needed["entry_id"] = "delivery=explicit_id writes each row under it"
    if mode.needs_same_bytes and options.dialect in _STAMPED:
        needed["time"] = f"the dialect {options.dialect} would write the time of writing, which differs in each attempt"
    if options.ordered_by is not None:
        needed[options.ordered_by] = "the option orderedBy names it"
    return needed


def _known(schema: t.StructType, options: SinkOptions) -> dict[str, tuple[str, _Fits]]:
    known = dict(_ABOUT)
    if options.layout == "envelope":
        known |= _ENVELOPE
    elif options.layout == "raw":
        known |= {"fields": _FIELDS, "id": _TEXT}
    else:
        known |= {name: _VALUE for name in schema.names if name not in _ABOUT} | (
            {"id": _TEXT} if "id" in schema.names else {}
        )
    if options.ordered_by is not None:
        known.setdefault(options.ordered_by, _ANY)
    return known


def _is_map(kind: t.DataType, *values: type[t.DataType]) -> bool:
    return isinstance(kind, t.MapType) and isinstance(kind.keyType, t.StringType) and isinstance(kind.valueType, values)


def _names(schema: t.StructType) -> str:
    return ", ".join(schema.names) or "no columns"
