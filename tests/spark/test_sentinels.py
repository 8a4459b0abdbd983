"""Spark's processes ask the sentinels themselves, so a failover between two of their connections is no matter."""

from typing import TYPE_CHECKING

import pytest

from penstock.backend.address import parse
from penstock.spark.connection.driver_link import Line
from penstock.spark.data_source import PenstockSource
from tests.spark.batch_reads import IDS, TEN, add
from tests.support.sentinels import Sentinel, sentinel, tcp_server
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@BOTH
def test_what_was_planned_at_the_old_primary_is_read_from_the_new_one(server: Server, topic: str) -> None:
    with tcp_server(server.binary) as old, tcp_server(server.binary) as new, sentinel(server.binary, old) as guard:
        for one in (old, new):
            with one.client() as admin:
                add(admin, topic, *TEN)
        reader = PenstockSource({"url": guard.url, "topic": topic}).reader(IDS)
        parts = reader.partitions()
        fail_over(guard, old, new)
        read = [id for part in parts for batch in reader.read(part) for id in batch.column(0).to_pylist()]
    assert read == TEN


def test_the_driver_goes_on_with_the_new_primary(server: Server, topic: str) -> None:
    with tcp_server(server.binary) as old, tcp_server(server.binary) as new, sentinel(server.binary, old) as guard:
        line = Line(parse(guard.url))
        line.command("writing", "SET", topic, "old")
        fail_over(guard, old, new)
        assert line.command("reading", "GET", topic) is None
        line.close()


def test_spark_reads_and_writes_by_the_name_of_a_service(spark: "SparkSession", server: Server, topic: str) -> None:
    with tcp_server(server.binary) as primary, sentinel(server.binary, primary) as guard, primary.client() as admin:
        add(admin, topic, *TEN)
        read = spark.read.format("penstock").options(url=guard.url, topic=topic).load().select("id", "payload")
        read.write.format("penstock").options(url=guard.url, topic=f"{topic}:copy").mode("append").save()
        assert admin.xlen(f"{topic}:copy") == len(TEN)


def fail_over(guard: Sentinel, old: Server, new: Server) -> None:
    guard.watch(new)
    old.kill()
