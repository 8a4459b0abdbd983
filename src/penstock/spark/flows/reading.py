"""From topics to the rows that a flow delivers: what its function made of messages, and what was no message."""

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StructField, StructType

from penstock.errors import ConfigurationError
from penstock.spark.flows.flow import Flow, Input
from penstock.spark.flows.schemas import struct_of
from penstock.spark.options.schemas import CORRUPT, UNREAD, archived_schema, check_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW, MALFORMED = "_row", "_malformed"
"""What a batch consists of: rows of the one, and rows of the other; in each row one of both is null."""

MESSAGE = "_message"
_OURS = (ROW, MALFORMED, "_id", "_table")
_ABOUT = ("entry_id", "ts", "id", "type", "key")


def rows_of(spark: "SparkSession", flow: Flow, server: Mapping[str, str], *, begun: bool) -> DataFrame:
    """The flow's result, as a stream; `server` are options that say where the server is.

    A flow that has `begun` reads topics that are new to it from where its group stands, or from their beginning.
    """
    options = {**server, **({} if begun else {"startingPosition": flow.options.start})}
    read = [_read(spark, flow, given, options) for given in flow.inputs]
    made = flow.function(*(_messages(rows, given) for rows, given in zip(read, flow.inputs, strict=True)))
    _check_made(flow, made)
    rows = made.select(F.struct("*").alias(ROW))
    if flow.options.malformed == "fail":
        return rows.withColumn(MALFORMED, F.lit(None).cast("struct<topic: string>"))
    bad = reduce(DataFrame.union, map(_malformed, read))
    return rows.withColumn(MALFORMED, F.lit(None).cast(bad.schema[MALFORMED].dataType)).union(
        bad.withColumn(ROW, F.lit(None).cast(rows.schema[ROW].dataType)).select(ROW, MALFORMED)
    )


def _read(spark: "SparkSession", flow: Flow, given: Input, more: Mapping[str, str]) -> DataFrame:
    failing = flow.options.malformed == "fail"
    options = {
        "topics": ",".join(given.topics),
        "group": flow.name,
        "maxEntriesPerTrigger": str(flow.options.per_batch),
        "mode": "failfast" if failing else "permissive",
    }
    schema = _columns(given, without={CORRUPT, UNREAD} if failing else set())
    return spark.readStream.format("penstock").options(**options, **more, **flow.options.source).schema(schema).load()


def _columns(given: Input, without: set[str]) -> StructType:
    """Of what can be known, what is asked for: the rest is not even decoded."""
    known = [field for field in archived_schema().fields if field.name not in without]
    if given.schema is None:
        return StructType(known)
    body = struct_of(given.schema)
    if MESSAGE in body.names:
        raise ConfigurationError(f"the schema of {given.topics[0]!r} has a column {MESSAGE!r}, a name that is ours")
    wanted = {"stream", *_ABOUT, CORRUPT, UNREAD}
    schema = StructType([field for field in known if field.name in wanted] + [StructField("payload", body)])
    check_schema(schema, "envelope")
    return schema


def _messages(rows: DataFrame, given: Input) -> DataFrame:
    """What the user's function sees."""
    if CORRUPT in rows.columns:
        rows = rows.where(F.col(CORRUPT).isNull()).drop(CORRUPT, UNREAD)
    if given.schema is None:
        return rows
    return rows.select("payload.*", F.struct(F.col("stream").alias("topic"), *_ABOUT).alias(MESSAGE))


def _malformed(rows: DataFrame) -> DataFrame:
    columns = {"stream": "topic", "entry_id": "entry_id", "ts": "ts", CORRUPT: "reason", UNREAD: "fields"}
    known = F.struct(*(F.col(name).alias(alias) for name, alias in columns.items()))
    return rows.where(F.col(CORRUPT).isNotNull()).select(known.alias(MALFORMED))


def _check_made(flow: Flow, made: object) -> None:
    if not isinstance(made, DataFrame) or not made.isStreaming:
        raise ConfigurationError(
            f"the function of flow {flow.name!r} must return a streaming DataFrame made of what it was given, not"
            f" {'one that is no stream' if isinstance(made, DataFrame) else type(made).__name__}"
        )
    if ours := sorted(set(made.columns) & set(_OURS)):
        raise ConfigurationError(f"flow {flow.name!r} gives a column {ours[0]!r}, a name that is ours: rename it")
    if len({name.lower() for name in made.columns}) < len(made.columns):
        raise ConfigurationError(f"flow {flow.name!r} gives two columns of one name: {', '.join(made.columns)}")
