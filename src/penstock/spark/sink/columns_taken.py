"""Which columns a sink takes, by layout and delivery; checked when the write is planned."""

from collections.abc import Callable

from pyspark.sql import types as t

from penstock.errors import ConfigurationError
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
_ABOUT = {"stream": _TEXT, "entry_id": _TEXT, "ts": _ANY, "_corrupt": _ANY}
_ENVELOPE = {
    **dict.fromkeys(("id", "type", "key", "traceparent", "tracestate"), _TEXT),
    "payload": _BYTES,
    "headers": _HEADERS,
    "time": _MOMENT,
}
_STAMPED = ("job", "enveloped")
"""Dialects that write the time of writing where a message has none."""


def check_columns(schema: t.StructType, options: SinkOptions) -> None:
    """Raises `ConfigurationError`, which names the column and what it must be."""
    for name, why in _needed(options).items():
        if name not in schema.names:
            raise ConfigurationError(f"the penstock sink needs a column {name!r}: {why}; there are {_names(schema)}")
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
    if options.layout == "flat" and not set(schema.names) - ABOUT_ROWS:
        raise ConfigurationError(f"layout=flat writes columns as fields, but there are only {_names(schema)}")


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
