"""The fixtures: one server for the whole run, emptied for every test that uses it."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from penstock.app import Penstock
from penstock.backend.address import URL_VARIABLE
from penstock.backend.embedded import EmbeddedServer
from penstock.backend.embedded_talk import ask

try:
    import pytest_asyncio
except ImportError:  # then it is for another plugin, such as anyio's, to run an async fixture
    async_fixture: Callable[[Callable[..., Any]], Any] = pytest.fixture
else:
    # Works in both of its modes; what has only pytest's decorator is ignored in the strict one.
    async_fixture = pytest_asyncio.fixture


@pytest.fixture(scope="session")
def penstock_server() -> Iterator[EmbeddedServer]:
    """A real server of this test process alone, which keeps nothing. Workers of pytest-xdist have one each."""
    with EmbeddedServer.start(ephemeral=True) as server:
        yield server


@pytest.fixture
def penstock_url(penstock_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of that server, emptied; it is $PENSTOCK_URL too, so an app that names no URL connects there.

    Emptied, rather than one prefix per test: topics keep the names that they have in your program, in receipts, events
    and dead letters alike, and an app that your program declares finds a clean server too.
    """
    ask(penstock_server.socket_path, "FLUSHALL")
    monkeypatch.setenv(URL_VARIABLE, penstock_server.url)
    return penstock_server.url


@async_fixture
async def penstock_app(penstock_url: str) -> AsyncIterator[Penstock]:
    """An app that is connected to that server, in the test's event loop. Declare faces, publish, `drain`."""
    async with Penstock.connect(penstock_url) as app:
        yield app
