"""A message's body as the column that was asked for: text, bytes, a struct, or a variant."""

from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
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
    StructType,
    TimestampType,
)
from pyspark.sql.variant_utils import VariantUtils

from penstock.message.faults import Unreadable, describe
from penstock.message.strict_json import encode
from penstock.message.times import read_time

Convert = Callable[[Any], Any]

_WHOLE: dict[type[DataType], int] = {ByteType: 7, ShortType: 15, IntegerType: 31, LongType: 63}


class PayloadColumn:
    """Turns bodies into values of one column type; `Unreadable` where a body does not fit the type."""

    def __init__(self, kind: DataType) -> None:
        self.is_text = isinstance(kind, StringType)
        self.is_stored = self.is_text or isinstance(kind, BinaryType)
        """The column holds a native payload as it is stored."""
        self.arrow_type: pa.DataType = to_arrow_type(kind, timezone="UTC")
        self._kind = kind
        self._convert = _struct(kind, "payload") if isinstance(kind, StructType) else _variant

    def value(self, body: Any, stored: bytes | None) -> Any:
        """`stored` is the JSON text the body was read from; None if it lay inside another document."""
        if isinstance(body, bytes):
            if isinstance(self._kind, BinaryType):
                return body
            raise Unreadable("the payload is bytes, not JSON: ask for the column payload as binary")
        if self.is_stored:
            raw = encode(body) if stored is None else stored
            return raw.decode() if self.is_text else raw
        return self._convert(body)


def _variant(body: Any) -> dict[str, bytes]:
    try:
        value, metadata = VariantUtils.parse_json(encode(body).decode())
    except Exception as error:
        raise Unreadable(f"the payload cannot be a variant: {describe(error)}") from error
    return {"value": value, "metadata": metadata}


def _converter(kind: DataType, where: str) -> Convert:
    """For values that are not null; `where` names them in errors."""
    if isinstance(kind, StructType):
        return _struct(kind, where)
    if isinstance(kind, ArrayType):
        element = _nullable(_converter(kind.elementType, f"{where}[]"))
        return lambda value: [element(item) for item in _checked(value, list, where, "an array")]
    if isinstance(kind, MapType):
        item = _nullable(_converter(kind.valueType, f"{where}{{}}"))
        return lambda value: [(key, item(one)) for key, one in _checked(value, dict, where, "an object").items()]
    return _scalar(kind, where)


def _struct(kind: StructType, where: str) -> Convert:
    members = [(field.name, _nullable(_converter(field.dataType, f"{where}.{field.name}"))) for field in kind.fields]

    def convert(value: Any) -> dict[str, Any]:
        given = _checked(value, dict, where, "an object")
        return {name: member(given.get(name)) for name, member in members}

    return convert


def _scalar(kind: DataType, where: str) -> Convert:
    if isinstance(kind, StringType):
        # As Spark's from_json: what is no string is kept as its JSON text.
        return lambda value: value if isinstance(value, str) else encode(value).decode()
    if isinstance(kind, BooleanType):
        return lambda value: _checked(value, bool, where, "true or false")
    if isinstance(kind, (FloatType, DoubleType)):
        return lambda value: float(_checked(value, (int, float), where, "a number"))
    if isinstance(kind, TimestampType):
        return lambda value: _moment(value, where)
    if isinstance(kind, DateType):
        return lambda value: _day(value, where)
    return _whole(where, kind)


def _whole(where: str, kind: DataType) -> Convert:
    bound = 1 << _WHOLE[type(kind)]

    def convert(value: Any) -> int:
        number: int = _checked(value, int, where, "a whole number")
        if not -bound <= number < bound:
            raise Unreadable(f"{where} is out of the range of {kind.simpleString()}")
        return number

    return convert


def _moment(value: Any, where: str) -> datetime:
    try:
        return read_time(value)
    except Unreadable as error:
        raise Unreadable(f"{where}: {error}") from error


def _day(value: Any, where: str) -> date:
    try:
        return msgspec.convert(value, date)
    except msgspec.ValidationError as error:
        raise Unreadable(f"{where} is not a date like 2026-01-31") from error


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _checked(value: Any, kinds: Any, where: str, wanted: str) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise Unreadable(f"{where} is not {wanted}")
    return value
