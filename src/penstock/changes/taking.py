"""Asking for a reader's turn."""

import asyncio
import time
from contextlib import suppress
from datetime import timedelta

from penstock.backend.base import StreamBackend
from penstock.changes.turn import Turn
from penstock.errors import PenstockError

_PATIENCE_SECONDS = 2.0


async def take(backend: StreamBackend, topic: str, reader: str, holder: str, lease: timedelta) -> Turn | timedelta:
    """The turn, or how long another may have it yet. Who is cancelled while it asks leaves what it is given then."""
    asked_at = time.monotonic()
    asking = asyncio.get_running_loop().create_task(backend.take_turn(topic, reader, holder, lease))
    try:
        got = await asyncio.shield(asking)
    except asyncio.CancelledError:
        with suppress(PenstockError):  # a server that cannot be asked lets the lease run out
            await _disclaim(backend, topic, reader, asking)
        raise
    return Turn(topic, reader, got, lease, asked_at) if isinstance(got, int) else got


async def _disclaim(backend: StreamBackend, topic: str, reader: str, asking: "asyncio.Task[int | timedelta]") -> None:
    try:
        await asyncio.wait([asking], timeout=_PATIENCE_SECONDS)
    finally:
        asking.cancel()  # of no effect on one that is answered; one that was not even sent is not sent any more
    if asking.done() and isinstance(got := asking.result(), int):
        await backend.leave_turn(topic, reader, got)
