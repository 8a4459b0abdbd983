"""Loops that go on beside the work of a queue."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def beside(stop: asyncio.Event, *loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Have them run until the block ends. One that meets what nobody foresaw sets `stop`, and is raised at the end."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    for task in tasks:
        task.add_done_callback(lambda _: stop.set())  # never a worker half alive
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
