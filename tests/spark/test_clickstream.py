"""The example of a flow: sessions from clicks, as plain Python finds them."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.clickstream import in_table, in_topic, make_clicks, publish, sessions, sessions_of
from penstock.backend.embedded import EmbeddedServer
from tests.spark.size import FULL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 1_000_000 if FULL else 20_000


@pytest.mark.timeout(900 if FULL else 180)
def test_spark_finds_the_sessions_that_plain_python_finds(spark: "SparkSession", tmp_path: Path) -> None:
    clicks = make_clicks(EVENTS)
    assert [click.at for click in clicks] != sorted(click.at for click in clicks)
    small = replace(sessions, options=replace(sessions.options, per_batch=EVENTS // 4))
    with EmbeddedServer.start(ephemeral=True) as server:
        publish(server.url, clicks)
        total = small.at(tmp_path, url=server.url).run(spark)
        assert total.entries == EVENTS
        assert total.batches > 4
        expected = sessions_of(clicks)
        assert len(expected) > EVENTS / 50
        assert in_table(tmp_path) == expected
        assert in_topic(spark, server.url) == expected
