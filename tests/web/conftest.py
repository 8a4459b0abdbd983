"""The servers of the flows, and a gateway to a topic on one of them."""

from collections.abc import AsyncIterator

import pytest

from tests.flows.conftest import admin, proxy, server, servers, stage, topic  # noqa: F401
from tests.support.serving import Served, served
from tests.support.stage import Stage


@pytest.fixture
async def web(stage: Stage) -> AsyncIterator[Served]:  # noqa: F811 - the fixture of that name
    """A gateway with the options that it has by default."""
    async with served(stage.app) as opened:
        yield opened
