"""Waiting for what must come, with a deadline that a slow machine keeps: who waits longer than needed has failed."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import redis

from penstock.errors import PublishUnknownError, ServerUnreachableError

T = TypeVar("T")

ENOUGH = 20.0
"""Seconds. Less than a test may take, and far more than anything that is waited for here."""


async def blocked(admin: "redis.Redis", readers: int = 1) -> None:
    """Wait until that many readers are blocked on the server."""
    async with asyncio.timeout(ENOUGH):
        while admin.info("clients")["blocked_clients"] < readers:
            await asyncio.sleep(0.005)


async def healed(call: Callable[[], Awaitable[T]], within: float = ENOUGH) -> T:
    """The call's result, once the calls that notice a broken connection have failed."""
    async with asyncio.timeout(within):
        while True:
            with contextlib.suppress(ServerUnreachableError, PublishUnknownError):
                return await call()
