"""How the handler of a message behaves: chosen by the message itself, so that every attempt and every worker agree."""

import asyncio
import ctypes
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

INNOCENT = frozenset({"ok", "slow", "hold", "gated", "block", "flaky", "forget"})
"""These must be handled in the end, and never reach the dead letters."""

FAILING = frozenset({"raise", "gated_raise", "exit", "recursion", "keyboard"})
"""These fail every time, by an exception; they must end in the dead letters after exactly their budget."""

AT_ONCE = FAILING - {"gated_raise"}
"""Those of them that wait for nobody."""

KILLING = frozenset({"os_exit", "segfault", "spin"})
"""These take their process with them; one run that nobody could count comes on top of the budget."""

ENDLESS = frozenset({"never"})
"""These never return, and nothing can stop them; like those that kill, they are given up after one run more."""

AGAIN = ".again"
"""Added to the path of a gate: that of whoever begins a message after another did."""

MALFORMED = "malformed"
"""No handler ever sees these."""


class Boom(Exception):
    """What a handler raises on purpose."""


class Forgotten(Exception):
    """What stands in a journal for a handler that returns without settling by hand; it is not raised to the engine."""


async def ok(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    """Return at once."""


async def slow(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    await asyncio.sleep(body["for"])


async def hold(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    """Take a long time at first, and none after something went wrong."""
    if not redelivered:
        await asyncio.sleep(body["for"])


async def gated(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    """Wait until the row opens the gate, of which there is one for the first to begin it and one for all others."""
    gate = Path(body["gate"] + (AGAIN if redelivered else ""))
    while not gate.exists():
        await asyncio.sleep(0.02)


async def gated_raise(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    await gated(body, attempt, redelivered)
    raise Boom("never")


async def block(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    """Hold up the whole event loop, as a computation does."""
    end = time.monotonic() + body["for"]
    while time.monotonic() < end:
        sum(range(1000))


async def flaky(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    if attempt < 2:
        raise Boom("not yet")


async def forget(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    """Settle nothing the first time, where that is the handler's own affair."""
    if not redelivered:
        raise Forgotten


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


async def never(body: dict[str, Any], attempt: int, redelivered: bool) -> None:
    """Never return, in a thread of its own: the rest of the process goes on."""
    threading.Event().wait()


BEHAVIOURS: dict[str, Callable[[dict[str, Any], int, bool], Awaitable[None]]] = {
    "ok": ok,
    "slow": slow,
    "hold": hold,
    "gated": gated,
    "gated_raise": gated_raise,
    "block": block,
    "flaky": flaky,
    "forget": forget,
    "raise": fail,
    "exit": leave,
    "recursion": recurse,
    "keyboard": keyboard,
    "os_exit": os_exit,
    "segfault": segfault,
    "spin": spin,
    "never": never,
}
