"""One Spark session for all tests of a process, servers of both kinds, and topics nobody else uses.

A JVM takes a gigabyte and a core, so all tests that name `spark` run in one process of pytest-xdist. A test that starts
a JVM of its own carries `@pytest.mark.xdist_group("spark")`.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
import redis

from penstock.message.ids import new_id
from tests.spark.size import FULL
from tests.support.java import SUBMIT_ARGUMENTS, SUBMIT_VARIABLE
from tests.support.servers import Server, redis_binary, valkey_binary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent.parent
_BINARIES = {"valkey": valkey_binary, "redis": redis_binary}


def pytest_configure() -> None:
    # For the processes that tests start, too, and not only those of this folder.
    os.environ[SUBMIT_VARIABLE] = SUBMIT_ARGUMENTS


def pytest_itemcollected(item: pytest.Item) -> None:
    # The first of them waits for the JVM, and each query for its turn beside all that runs here.
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(180))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "spark" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("spark"))
    long = [item for item in items if item.get_closest_marker("full") is not None and not FULL]
    if long:  # deselected, not skipped: nothing is missing that a run of this size should have
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(scope="session")
def spark_environment() -> Iterator[None]:
    """What Spark's Python processes inherit: they import the toys and pipelines of these tests by name."""
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), before.get("PYTHONPATH"))))
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def spark(spark_environment: None, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """local[2]; views, settings and registered data sources are shared by all tests, so leave none behind."""
    from penstock.spark import session

    place = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.memory": "1g",
        "spark.local.dir": str(place),
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": str(place / "warehouse"),
    }
    started = session("penstock tests", "local[2]", settings)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, Server]]:
    """Those that were needed so far, by kind."""
    started: dict[str, Server] = {}
    yield started
    for server in started.values():
        server.stop()
        shutil.rmtree(server.directory)


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: dict[str, Server], missing: Callable[[str], NoReturn]) -> Server:
    """For both kinds: `@pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)`."""
    kind = getattr(request, "param", "valkey")
    if kind not in servers:
        binary = _BINARIES[kind]()
        if binary is None:
            missing(f"{kind}-server")
        # Not pytest's tmp_path: its names are too long for a unix socket.
        servers[kind] = Server(binary, Path(tempfile.mkdtemp(prefix="ps-")))
    return servers[kind]


@pytest.fixture
def admin(server: Server) -> "Iterator[redis.Redis]":
    """Looks at the server, and does to it what operators and other programs do."""
    with server.client() as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"t:{new_id()}"
