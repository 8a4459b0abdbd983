"""When a wrong option is told: at load, or at save, through Spark itself; and what Spark lets nobody tell so early.

Spark hands a data source its options at load, but neither whether a batch or a stream will be read nor the user's
schema. What depends on those is refused at the first use of the DataFrame.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOBODY = {"url": "redis://127.0.0.1:1", "topic": "t"}
"""A server that nothing here ever asks."""

EARLIER = "Spark now tells at load what was wrong later: say so in docs/spark.md, and refuse it in data_source.py"


def reader(spark: "SparkSession", how: str, **options: str) -> Any:
    return getattr(spark, how).format("penstock").options(**NOBODY, **options)


def loaded(reader: Any) -> Any:
    try:
        return reader.load()
    except PySparkException as error:
        raise AssertionError(EARLIER) from error


@pytest.mark.parametrize("how", ["read", "readStream"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"windows": "5"}, "the penstock format has no option 'windows': did you mean window"),
        ({"layout": "wide"}, "option layout='wide' cannot be used: it must be one of envelope, raw, flat"),
        ({"group": "g", "delivery": "fence"}, "option group is for reading, and option delivery for writing"),
        ({"endingPosition": "5-0", "maxEntriesPerTrigger": "5"}, "endingPosition is for batch reads: a stream has no"),
        ({"view": "info", "group": "g"}, "option group does not apply to view=info"),
        ({"delivery": "fence"}, "the penstock source has no option 'delivery'"),
    ],
)
def test_what_fits_no_read_fails_at_load(spark: "SparkSession", how: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(PySparkException, match=said):
        reader(spark, how, **options).load()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxEntriesPerTrigger": "5"}, "option maxEntriesPerTrigger is for readStream"),
        ({"group": "g", "startingPosition": "5-0"}, "option group does nothing in a batch read"),
    ],
)
def test_what_only_a_stream_can_do_fails_when_a_batch_is_used(
    spark: "SparkSession", options: dict[str, str], said: str
) -> None:
    frame = loaded(reader(spark, "read", **options))
    with pytest.raises(PySparkException, match=said):
        frame.count()


@pytest.mark.parametrize("options", [{"endingPosition": "5-0"}, {"view": "info"}])
def test_what_only_a_batch_can_do_fails_when_a_stream_is_used(
    spark: "SparkSession", tmp_path: Path, options: dict[str, str]
) -> None:
    sink = loaded(reader(spark, "readStream", **options)).writeStream.format("noop")
    with pytest.raises(PySparkException, match="is for batch reads"):
        sink.option("checkpointLocation", str(tmp_path)).start().awaitTermination(60)


def test_a_schema_that_cannot_be_filled_fails_when_it_is_used(spark: "SparkSession") -> None:
    frame = loaded(reader(spark, "read").schema("nope string"))
    with pytest.raises(PySparkException, match="layout=envelope has no column 'nope'"):
        frame.count()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"windows": "5"}, "the penstock format has no option 'windows': did you mean window"),
        (
            {"mode": "failfast"},
            "the penstock sink has no option 'mode'|option mode is for reading, and option checkpointlocation",
        ),
        ({"orderedBy": "id"}, "option orderedBy is for delivery=fence"),
    ],
)
def test_what_fits_no_write_fails_before_a_row_is_written(
    spark: "SparkSession", tmp_path: Path, options: dict[str, str], said: str
) -> None:
    rows = spark.sql("select uuid() as id, '{}' as payload")
    with pytest.raises(PySparkException, match=said):
        rows.write.format("penstock").options(**NOBODY, **options).mode("append").save()
    stream = spark.readStream.format("rate").load().selectExpr("uuid() as id", "'{}' as payload")
    sink = stream.writeStream.format("penstock").options(**NOBODY, **options)
    query = sink.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(PySparkException, match=said):
        query.awaitTermination(60)
