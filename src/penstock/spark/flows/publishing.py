"""Rows of a flow as messages of a topic."""

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StringType, StructField, StructType

from penstock.errors import ConfigurationError
from penstock.spark.flows.flow import Topic
from penstock.spark.flows.results import ID
from penstock.spark.sink.columns_taken import check_columns
from penstock.spark.sink.writers import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Nulls are written, so that all messages have the same fields; times lose nothing of what Spark knows.
_JSON = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "false"}


def check_topic_rows(schema: StructType, topic: Topic, sink: Sink) -> None:
    """`ConfigurationError` if rows of this schema cannot become messages as the output says."""
    for what, name in (("key", topic.key), ("id", topic.id)):
        if name is not None and name not in schema.names:
            raise ConfigurationError(
                f"{topic} takes its {what} from a column {name!r}, but there are {', '.join(schema.names)}"
            )
    if "payload" not in schema.names:
        return
    if topic.key or topic.type or topic.id:
        raise ConfigurationError(f"rows with a column 'payload' are envelopes: for {topic} leave key, type and id out")
    ids = [] if "id" in schema.names else [StructField("id", StringType())]
    check_columns(StructType([*schema.fields, *ids]), sink.options)


def messages(rows: "DataFrame", topic: Topic) -> "DataFrame":
    """Rows, each with an id in `_id`, as the columns that the sink takes."""
    if topic.where is not None:
        rows = rows.where(topic.where)
    if "payload" in rows.columns:
        return rows.drop(ID) if "id" in rows.columns else rows.withColumnRenamed(ID, "id")
    columns = [name for name in rows.columns if name != ID]
    body = F.to_json(F.struct(*map(_column, columns)), _JSON)
    made = {"id": _column(topic.id or ID).cast("string"), "payload": body}
    if topic.key is not None:
        made["key"] = _column(topic.key).cast("string")
    if topic.type is not None:
        made["type"] = F.lit(topic.type)
    return rows.select(*(column.alias(name) for name, column in made.items()))


def _column(name: str) -> Any:
    return F.col("`" + name.replace("`", "``") + "`")
