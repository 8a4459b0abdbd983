"""What the user says about bodies, as a schema of Spark's."""

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect as kinds
from pyspark.errors import PySparkException
from pyspark.sql import types as t

from penstock.errors import ConfigurationError

_TEXT = t.StringType()
_PLAIN: dict[type[kinds.Type], t.DataType] = {
    kinds.BoolType: t.BooleanType(),
    kinds.IntType: t.LongType(),
    kinds.FloatType: t.DoubleType(),
    kinds.StrType: _TEXT,
    kinds.DateTimeType: t.TimestampType(),
    kinds.DateType: t.DateType(),
    # What Spark has no JSON type for comes as the text that is in the JSON.
    kinds.AnyType: _TEXT,
    kinds.BytesType: _TEXT,
    kinds.DecimalType: _TEXT,
    kinds.RawType: _TEXT,
    kinds.TimeDeltaType: _TEXT,
    kinds.TimeType: _TEXT,
    kinds.UUIDType: _TEXT,
}
_LISTS = (kinds.ListType, kinds.SetType, kinds.FrozenSetType, kinds.VarTupleType)
_RECORDS = (kinds.StructType, kinds.DataclassType, kinds.TypedDictType, kinds.NamedTupleType)


def struct_of(schema: Any) -> t.StructType:
    """The columns that a schema names: a StructType, DDL like "user string, at timestamp", or a class with fields.

    A field that may hold several types comes as the text of its JSON. What a class requires is not checked: a field
    that a body lacks is null.
    """
    if isinstance(schema, t.StructType):
        return schema
    if isinstance(schema, str):
        return _from_ddl(schema)
    if isinstance(schema, type) and (dataclasses.is_dataclass(schema) or issubclass(schema, msgspec.Struct)):
        return _record(kinds.type_info(schema), schema.__name__)
    raise ConfigurationError(
        "a schema is DDL like 'user string, at timestamp', a StructType, a dataclass or a msgspec.Struct,"
        f" not {schema!r}"
    )


def _from_ddl(text: str) -> t.StructType:
    try:
        read = t.StructType.fromDDL(text)
    except PySparkException as error:
        raise ConfigurationError(f"the schema {text!r} cannot be read: {error.getMessage()}") from error
    if not isinstance(read, t.StructType):
        raise ConfigurationError(f"the schema {text!r} names no columns: write it like 'user string, at timestamp'")
    return read


def _record(kind: Any, where: str) -> t.StructType:
    members = [(field.encode_name, _kind(field.type, f"{where}.{field.name}")) for field in kind.fields]
    return t.StructType([t.StructField(name, member) for name, member in members])


def _kind(kind: kinds.Type, where: str) -> t.DataType:
    if (plain := _PLAIN.get(type(kind))) is not None:
        return plain
    if isinstance(kind, _LISTS):
        return t.ArrayType(_kind(kind.item_type, f"{where}[]"))
    if isinstance(kind, _RECORDS):
        return _record(kind, where)
    known: dict[type[kinds.Type], Callable[[Any, str], t.DataType]] = {
        kinds.DictType: lambda found, at: t.MapType(_TEXT, _kind(found.value_type, f"{at}{{}}")),
        kinds.UnionType: _union,
        kinds.LiteralType: lambda found, _: _values(found.values),
        kinds.EnumType: lambda found, _: _values([one.value for one in found.cls]),
    }
    if type(kind) not in known:
        raise ConfigurationError(f"{where} is of a type that JSON cannot fill: declare it as str to get its JSON")
    return known[type(kind)](kind, where)


def _union(kind: kinds.UnionType, where: str) -> t.DataType:
    given = [one for one in kind.types if not isinstance(one, kinds.NoneType)]
    if len(given) == 1:
        return _kind(given[0], where)
    numbers = all(isinstance(one, kinds.IntType | kinds.FloatType) for one in given)
    return t.DoubleType() if numbers else _TEXT


def _values(values: Any) -> t.DataType:
    return t.LongType() if all(type(value) is int for value in values) else _TEXT
