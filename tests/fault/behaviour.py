"""How the handler of a message behaves: chosen by the message itself, so that every attempt and every worker agree."""

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

INNOCENT = frozenset({"ok", "slow", "hold", "block", "flaky"})
"""These must be handled in the end, and never reach the dead letters."""

FAILING = frozenset({"raise", "exit", "recursion", "keyboard"})
"""These fail every time, by an exception; they must end in the dead letters after exactly their budget."""

KILLING = frozenset({"os_exit", "segfault", "spin"})
"""These take their process with them; one run that nobody could count comes on top of the budget."""

MALFORMED = "malformed"
"""No handler ever sees these."""


class Boom(Exception):
    """What a handler raises on purpose."""


async def ok(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    """Return at once."""


async def slow(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    await asyncio.sleep(body["for"])


async def hold(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    """Take a long time at first, and none after something went wrong."""
    if not redelivered:
        await asyncio.sleep(body["for"])


async def block(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    """Hold up the whole event loop, as a computation does."""
    end = time.monotonic() + body["for"]
    while time.monotonic() < end:
        sum(range(1000))


async def flaky(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    if attempt < 2:
        raise Boom("not yet")


async def fail(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    raise Boom("never")


async def leave(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    sys.exit(3)


async def recurse(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    def deeper() -> None:
        deeper()

    deeper()


async def keyboard(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    raise KeyboardInterrupt


async def os_exit(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    os._exit(4)


async def segfault(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    ctypes.string_at(0)


async def spin(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    """Never return and never yield: only ending the process helps."""
    while True:
        time.sleep(0.001)


BEHAVIOURS: dict[str, Callable[[dict[str, Any], int, bool], Awaitable[None]]] = {
    "ok": ok,
    "slow": slow,
    "hold": hold,
    "block": block,
    "flaky": flaky,
    "raise": fail,
    "exit": leave,
    "recursion": recurse,
    "keyboard": keyboard,
    "os_exit": os_exit,
    "segfault": segfault,
    "spin": spin,
}
