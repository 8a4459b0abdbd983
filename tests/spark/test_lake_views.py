"""The lake's tables in Spark SQL are those of DuckDB, row for row."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from penstock.lake import Lake, tables
from penstock.message.ids import new_id
from penstock.spark.pipelines.archive import Archive
from penstock.spark.pipelines.lake_views import register
from tests.lake.dying import give_up
from tests.lake.payloads import pour_payloads
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAYLOADS = [
    '{"total":1,"who":"1","ok":true,"deep":{"b":[1.5,null],"a":"ü"},"n":null}',
    '{"total":2.5,"who":2,"ok":"no","deep":[],"it\'s":"x"}',
    f'{{"total":{2**53 + 1},"who":{10**45 + 1},"":1,"a`b.c":"\\u00e9\\n\\"q","Total":-1e300}}',
    f'{{"total":-0.125,"who":{2**63},"big":{2**63 - 1},"key":"mine","0":[0]}}',
    '{"big":1.5,"total":"text","日本":"\\ud83d\\ude00"}',
    "[1, 2]", "null", '"text"', "3", "{}",
]  # fmt: skip


@pytest.fixture
def names() -> Iterator[list[str]]:
    """Views that are to go with the test."""
    from pyspark.sql import SparkSession

    made: list[str] = []
    yield made
    session = SparkSession.getActiveSession()
    assert session is not None
    for name in made:
        session.catalog.dropTempView(f"`{name}`")


def by_spark(spark: "SparkSession", name: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.table(f"`{name}`").collect()]


def by_duckdb(lake: Lake, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tables.query(lake, f'SELECT * FROM "{name}"').to_pylist()
    return found


def plain(rows: list[dict[str, Any]], as_json: frozenset[str] = frozenset()) -> list[str]:
    """In one spelling and order; which of two JSON texts of one value it is does not matter."""

    def cell(name: str, value: Any) -> Any:
        if name in as_json and value is not None:
            return json.loads(value)
        if name in ("headers", "details") and value is not None:
            return sorted(dict(value).items())
        if name == "fields" and value is not None:
            return [bytes(part).hex() for part in value]
        return value.timestamp() if hasattr(value, "timestamp") else value

    return sorted(repr({name: cell(name, row[name]) for name in sorted(row)}) for row in rows)


def test_every_table_shows_what_duckdb_shows(
    spark: "SparkSession", server: Server, admin: "redis.Redis", topic: str, tmp_path: Path, names: list[str]
) -> None:
    foreign = f"тема {topic}"  # no name that Penstock would give
    for payload in PAYLOADS:
        admin.xadd(topic, {"id": new_id(), "payload": payload, "headers": '{"a":"b"}', "key": "k"})
    for _ in range(2):
        admin.xadd(foreign, {"id": "0190a0e0-0000-7000-8000-000000000001", "payload": '{"same":1}'})
    admin.xadd(topic, {"neither": b"\xff\x00"})
    asyncio.run(give_up(server.url, topic, [{"total": "dead"}, {"total": 8}]))
    Archive(lake=tmp_path / "la[k]e", topics=[topic, foreign], url=server.url).run(spark)
    lake = Lake.open(tmp_path / "la[k]e")

    names += register(spark, lake)

    assert names == ["raw", "malformed", "dead", "messages", topic, foreign]
    counts = {name: len(by_spark(spark, name)) for name in names}
    assert counts == {"raw": 14, "malformed": 1, "dead": 2, "messages": 13, topic: 12, foreign: 1}
    typed = next(row for row in by_spark(spark, topic) if row["total__whole"])
    assert (typed["total__whole"], typed["who__digits"], typed["Total__number"]) == (2**53 + 1, str(10**45 + 1), -1e300)
    for name in names:
        assert plain(by_spark(spark, name), frozenset({"deep", "0"})) == plain(
            by_duckdb(lake, name), frozenset({"deep", "0"})
        )


def test_an_empty_lake_and_topics_named_like_tables(spark: "SparkSession", tmp_path: Path, names: list[str]) -> None:
    lake = Lake.create(tmp_path)
    names += register(spark, lake)
    assert [len(by_spark(spark, name)) for name in names] == [0, 0, 0, 0]
    assert [spark.table(name).columns for name in names] == [
        list(tables.query(lake, f"SELECT * FROM {name}").column_names) for name in names
    ]
    for topic in ("dead", "orders", "Orders"):
        pour_payloads(lake, topic, ['{"a":1}'])
    names[:] = register(spark, lake)
    assert names == ["raw", "malformed", "dead", "messages", "Orders"]
    assert [len(by_spark(spark, name)) for name in names] == [3, 0, 0, 3, 1]
    assert spark.sql("SELECT topic FROM raw WHERE topic = 'dead'").count() == 1
