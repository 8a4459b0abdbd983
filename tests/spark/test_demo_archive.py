"""The demo's archive beside its books: it agrees with them, and does not if anything happened in between."""

import asyncio
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
from rich.console import Console

from penstock.backend.embedded import EmbeddedServer
from penstock.cli import demo
from penstock.cli.demo_archive import compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = 20


class Shop:
    """A server of its own with the demo's orders handled, and what the demo says."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.screen = io.StringIO()
        self.console = Console(file=self.screen, width=120)
        self.books = asyncio.run(demo._run(url, ORDERS, self.console))

    def do(self, act: "Callable[[redis.Redis], object]") -> None:
        with redis.Redis.from_url(self.url) as client:
            act(client)


@pytest.fixture
def shop() -> Iterator[Shop]:
    with EmbeddedServer.start(ephemeral=True) as server:
        yield Shop(server.url)


def delete(client: "redis.Redis") -> None:
    client.xdel(demo.TOPIC, client.xrange(demo.TOPIC, count=3)[-1][0])


def add(client: "redis.Redis") -> None:
    client.xadd(demo.TOPIC, {"payload": '{"number":99,"total":7}'})


def replace(client: "redis.Redis") -> None:
    """Only the sum can tell: as many entries as before, each different, and the dead letter among them."""
    entries = client.xrange(demo.TOPIC)
    fields = {name.decode(): value for name, value in entries[-2][1].items()}
    client.xdel(demo.TOPIC, entries[-2][0])
    client.xadd(demo.TOPIC, fields | {"payload": '{"number":99,"total":7}'})


def test_bus_and_archive_agree(spark: "SparkSession", shop: Shop, tmp_path: Path) -> None:
    compare(spark, shop.url, shop.books, tmp_path, shop.console)
    assert f"Archived {ORDERS + 1} entries" in shop.screen.getvalue()
    assert "Bus and archive agree" in shop.screen.getvalue()


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        pytest.param(
            delete,
            "bus and archive do not agree on: published, distinct, handled, charged;",
            marks=pytest.mark.full,
        ),
        pytest.param(
            add, "bus and archive do not agree on: published, distinct, handled, charged;", marks=pytest.mark.full
        ),
        (replace, "bus and archive do not agree on: charged;"),
    ],
    ids=["deleted", "added", "replaced"],
)
def test_an_archive_of_other_entries_than_were_handled_fails_the_demo(
    spark: "SparkSession", shop: Shop, tmp_path: Path, act: "Callable[[redis.Redis], object]", complaint: str
) -> None:
    shop.do(act)
    with pytest.raises(demo.DemoFailedError) as failure:
        compare(spark, shop.url, shop.books, tmp_path, shop.console)
    assert complaint in str(failure.value)
    assert "agree." not in shop.screen.getvalue()


def test_an_archive_that_cannot_be_made_fails_the_demo_in_one_line(
    spark: "SparkSession", shop: Shop, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint").write_text("no directory")
    with pytest.raises(demo.DemoFailedError, match="the archive could not be made: ") as failure:
        compare(spark, shop.url, shop.books, tmp_path, shop.console)
    assert "\n" not in str(failure.value)
