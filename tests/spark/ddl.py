"""Schemas from the text users write; Spark's own parser needs a JVM."""

from pyspark.sql import types as t

_SIMPLE: dict[str, t.DataType] = {
    "string": t.StringType(), "binary": t.BinaryType(), "boolean": t.BooleanType(), "tinyint": t.ByteType(),
    "smallint": t.ShortType(), "int": t.IntegerType(), "bigint": t.LongType(), "float": t.FloatType(),
    "date": t.DateType(), "double": t.DoubleType(), "timestamp": t.TimestampType(), "variant": t.VariantType(),
}  # fmt: skip


def schema(text: str) -> t.StructType:
    """`name type, ...`"""
    return t.StructType([_column(*part.strip().split(" ", 1)) for part in _split(text)])


def _column(name: str, kind: str) -> t.StructField:
    bare = kind.removesuffix(" not null")
    return t.StructField(name, _type(bare), bare == kind)


def _type(text: str) -> t.DataType:
    outer, _, inner = text.strip().removesuffix(">").partition("<")
    if outer == "array":
        return t.ArrayType(_type(inner))
    if outer == "map":
        return t.MapType(*map(_type, _split(inner)))
    if outer == "struct":
        return t.StructType([_column(*part.split(":", 1)) for part in _split(inner)])
    return _SIMPLE[outer]


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += (character == "<") - (character == ">")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts
