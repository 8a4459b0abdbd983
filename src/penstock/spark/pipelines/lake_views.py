"""The tables of a lake in Spark SQL, row for row what DuckDB shows: from the files that the lake's log lists."""

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from penstock.lake import DataFile, Lake, Snapshot
from penstock.lake.learning import EXACT, schema_of
from penstock.lake.schemas import Column
from penstock.lake.tables import COLUMNS, DEAD, MALFORMED, PARTITIONS, RAW
from penstock.lake.topic_views import is_shadowed, topics
from penstock.spark.pipelines.days import NO_DAY, day_of
from penstock.spark.queries.reading_files import literal

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession

_TYPES = {
    "VARCHAR": "string",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "BIGINT": "bigint",
    "BOOLEAN": "boolean",
    "MAP(VARCHAR, VARCHAR)": "map<string, string>",
    "BLOB[]": "array<binary>",
    "DOUBLE": "double",
    "JSON": "string",
}
_MOMENTS = {RAW: "ts", MALFORMED: "ts", DEAD: "died"}
_FIRST = "row_number() OVER (PARTITION BY topic, id ORDER BY ts NULLS LAST, seq NULLS LAST, entry_id) = 1"


def register(spark: "SparkSession", lake: Lake) -> list[str]:
    """Make temporary views of the lake as it is now, and return their names.

    They are raw, malformed, dead, messages, and one for each topic, with a column for each field of its payloads; what
    is JSON in DuckDB is its text here. A topic whose name is that of a table, or another topic's but for upper and
    lower case, has none.
    """
    state = lake.snapshot()
    frames = {table: _table(spark, lake, state, table) for table in (RAW, MALFORMED, DEAD)}
    frames["messages"] = _messages(frames[RAW])
    made = {name.casefold() for name in frames}
    for topic in topics(state):
        if topic.casefold() not in made and not is_shadowed(topic, state):
            made.add(topic.casefold())
            rows = _of_topic(spark, lake, RAW, topic, state.of(RAW, topic=topic))
            frames[topic] = _typed(_messages(rows), schema_of(lake, topic).columns)
    for name, frame in frames.items():
        frame.createOrReplaceTempView(_quoted(name))
    return list(frames)


def _table(spark: "SparkSession", lake: Lake, state: Snapshot, table: str) -> "DataFrame":
    """A frame for each topic, put together: a query that names a topic reads no other."""
    found = sorted({file.partition["topic"] for file in state.of(table)})
    if not found:
        return spark.createDataFrame([], _ddl(table, partitioned=True))
    frames = [_of_topic(spark, lake, table, topic, state.of(table, topic=topic)) for topic in found]
    return reduce(lambda one, other: one.union(other), frames)


def _of_topic(spark: "SparkSession", lake: Lake, table: str, topic: str, files: Sequence[DataFile]) -> "DataFrame":
    from pyspark.sql import functions as f

    # What the directories say is not asked of Spark: it does not read names beyond ASCII as they were written.
    reader = spark.read.schema(_ddl(table)).option("recursiveFileLookup", "true")
    rows = reader.parquet(*(literal(lake.path / file.path) for file in files))
    return rows.select(
        "*", f.lit(topic).alias("topic"), f.expr(f"coalesce({day_of(_MOMENTS[table])}, '{NO_DAY}') AS date")
    )


def _messages(rows: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    return rows.withColumn("is first", f.expr(_FIRST)).where("`is first`").drop("is first")


def _typed(rows: "DataFrame", columns: Sequence[Column]) -> "DataFrame":
    from pyspark.sql import functions as f

    values = f.expr("try_cast(try_parse_json(payload) AS map<string, variant>)")
    texts = f.expr("from_json(payload, 'map<string, string>')")
    parsed = rows.select("*", values.alias("values of it"), texts.alias("texts of it"))
    typed = [_value(column).alias(column.name) for column in columns]
    return parsed.select(*COLUMNS[RAW], *PARTITIONS, *typed)


def _value(column: Column) -> "Expression":
    from pyspark.sql import functions as f

    value = f.try_element_at(f.col("`values of it`"), f.lit(column.field))
    text = f.try_element_at(f.col("`texts of it`"), f.lit(column.field))
    return f.when(_kind(value, text).isin(*column.takes), text.try_cast(_TYPES[column.type]))


def _kind(value: "Expression", text: "Expression") -> "Expression":
    """What `learning.kind_of` says in DuckDB."""
    from pyspark.sql import functions as f

    type, whole = f.schema_of_variant(value), text.try_cast("bigint")
    number = f.when(~text.rlike("^-?[0-9]+$"), "number").when(whole.isNull(), "digits")
    number = number.when(whole.between(-EXACT, EXACT), "whole").otherwise("long")
    return (
        f.when(value.isNull() | f.is_variant_null(value), None)
        .when(type == "STRING", "text")
        .when(type == "BOOLEAN", "flag")
        .when(type.startswith("OBJECT") | type.startswith("ARRAY"), "json")
        .otherwise(number)
    )


def _ddl(table: str, *, partitioned: bool = False) -> str:
    columns = COLUMNS[table] | (PARTITIONS if partitioned else {})
    return ", ".join(f"{_quoted(name)} {_TYPES[kind]}" for name, kind in columns.items())


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
