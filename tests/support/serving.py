"""A gateway on a real port, and a client to it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from penstock import Penstock
from penstock.web import Gateway, WebOptions, create_app
from penstock.web.server import Serving, address_of, listen


class Served(NamedTuple):
    """A gateway that is up."""

    gateway: Gateway
    url: str
    client: httpx.AsyncClient
    serving: Serving


@asynccontextmanager
async def served(app: Penstock, options: WebOptions | None = None, *, around: Any = None) -> AsyncIterator[Served]:
    """Until the end of the block, which ends it as a signal would. `around` gives the web app that it is part of."""
    gateway = create_app(app, options or WebOptions())
    stop, ready = asyncio.Event(), asyncio.Event()
    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        serving = Serving(gateway, 1000, within=None if around is None else around(gateway))
        running = asyncio.create_task(serving.run(listening, stop.wait(), ready.set))
        try:
            async with asyncio.timeout(30):
                await ready.wait()
            async with httpx.AsyncClient(base_url=address_of(listening), timeout=20) as client:
                yield Served(gateway, address_of(listening), client, serving)
        finally:
            stop.set()
            async with asyncio.timeout(30):
                await running
