"""Running faces until there is nothing left to do, and looking at what was published."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from penstock.app import Penstock
from penstock.backend.entry import Malformed
from penstock.delivery.face import Face
from penstock.errors import ConfigurationError
from penstock.message.message import Message
from penstock.testing.backlog import Backlog, backlog
from penstock.testing.backlog import hurry as hurry_up
from penstock.testing.recorder import Recorder, app_events

DRAIN = timedelta(seconds=10)
_LOOK_SECONDS = 0.01
_PAGE = 1000


async def drain(app: Penstock, *faces: Face, timeout: timedelta = DRAIN, hurry: bool = False) -> None:
    """Run these faces, or all that have handlers, until everything published so far is settled; then stop them.

    Settled means: nothing undelivered, pending, waiting for a retry or being retried, and no handler that still runs
    after its message was acked. What handlers publish to the same faces meanwhile counts too. What was published for
    later counts from the moment it is due. With `hurry` neither retries nor delayed messages wait for their time, so a
    test need not live through a backoff. Fails the test after `timeout`, with what was left and what happened; a
    handler that runs then is given its face's own time to end.
    """
    chosen = _chosen(app, faces)
    async with app_events(app) as seen:
        running = asyncio.create_task(app.run(*chosen, signals=False))
        waiting = asyncio.create_task(_settled(app, chosen, seen, hurry=hurry))
        try:
            done, _ = await asyncio.wait(
                {running, waiting}, timeout=timeout.total_seconds(), return_when=asyncio.FIRST_COMPLETED
            )
            failure = "" if done else await _failure(app, chosen, seen, timeout, hurry=hurry)
        finally:
            waiting.cancel()
            if not running.done():  # else it was refused, perhaps because the app is running for somebody else
                app.stop()
            await running
        if waiting in done:
            waiting.result()
        else:
            raise AssertionError(failure or f"the app was stopped before it had settled everything:\n{seen.describe()}")


async def settled(app: Penstock, *faces: Face, timeout: timedelta = DRAIN) -> None:
    """As `drain`, for faces that are running already: wait until everything published so far is settled."""
    chosen = _chosen(app, faces)
    async with app_events(app) as seen:
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await _settled(app, chosen, seen, hurry=False)
        except TimeoutError:
            raise AssertionError(await _failure(app, chosen, seen, timeout, hurry=False)) from None


async def published(app: Penstock, topic: str) -> list[Message[Any]]:
    """Every message that is on the topic now, oldest first, handled or not. Raises if one cannot be read."""
    name = app.full_name(topic)
    messages: list[Message[Any]] = []
    start = "-"
    while entries := await app.backend.read_range(name, start, "+", _PAGE):
        for entry in entries:
            if isinstance(entry, Malformed):
                raise entry.error
            messages.append(entry.message)
        start = f"({entries[-1].id}"
    return messages


def _chosen(app: Penstock, faces: Sequence[Face]) -> Sequence[Face]:
    chosen = faces or app.handled_faces
    if not chosen:
        raise ConfigurationError("nothing to drain: no bus and no queue of this app has a handler")
    return chosen


async def _settled(app: Penstock, faces: Sequence[Face], seen: Recorder, *, hurry: bool) -> None:
    """Returns when two looks in a row found nothing, and nothing happened between them.

    One look is not enough: while it looks at one topic, a handler of another may publish to those it has seen already.
    """
    clean = 0
    while clean < 2:
        before = len(seen.all)
        left = await _backlogs(app, faces, hurry=hurry)
        is_busy = any(face.is_busy for face in faces)
        clean = clean + 1 if not left and not is_busy and len(seen.all) == before else 0
        if not clean:
            await asyncio.sleep(_LOOK_SECONDS)


async def _backlogs(app: Penstock, faces: Sequence[Face], *, hurry: bool = False) -> list[Backlog]:
    backlogs = []
    for topic, group in dict.fromkeys((topic, face.group or "") for face in faces for topic in face.topics):
        if hurry:
            await hurry_up(app.backend, topic, group)
        backlogs.append(await backlog(app.backend, topic, group))
    return [one for one in backlogs if not one.is_empty]


async def _failure(app: Penstock, faces: Sequence[Face], seen: Recorder, timeout: timedelta, *, hurry: bool) -> str:
    left = await _backlogs(app, faces)
    lines = [f"not settled within {timeout.total_seconds():g} s:", *[f"  {one}" for one in left]]
    lines += [f"  {face!r}: a handler that has not returned" for face in faces if face.is_busy]
    if not hurry and any(one.parked for one in left):
        lines.append("drain(..., hurry=True) does not wait for retries to become due.")
    return "\n".join([*lines, "What happened meanwhile:", seen.describe()])
