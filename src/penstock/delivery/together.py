"""Running things that live and end together, or to their end."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`. Cancelled meanwhile, it is finished all the same before that is passed on.

    For what the server may have done already: dropped half-way, nobody would know of it.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # collected: nobody is left whom it could trouble
        raise


@asynccontextmanager
async def ended_with(outer: asyncio.Event) -> AsyncIterator[asyncio.Event]:
    """An event of one's own, which is set when `outer` is, or earlier by whoever wants this part alone to end."""
    inner = asyncio.Event()

    async def pass_on() -> None:
        await outer.wait()
        inner.set()

    passing = asyncio.create_task(pass_on())
    try:
        yield inner
    finally:
        passing.cancel()


async def run_together(works: Iterable[Coroutine[Any, Any, None]], stop: asyncio.Event) -> None:
    """Run all of them to their end. If one fails, `stop` is set, the others may end in good order, and it is raised.

    The first error itself, not a group of one: whoever forgot a server's address must read that, and nothing else.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        stop.set()
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        while pending := [task for task in tasks if not task.done()]:
            for task in pending:
                task.cancel()
            # Cancelled once more, so are they: the first time they end in good order, the second time at once.
            with suppress(asyncio.CancelledError):
                await asyncio.wait(pending)
        raise
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
