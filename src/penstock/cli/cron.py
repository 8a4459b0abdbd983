"""`penstock cron`: the schedules of a queue."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Literal, TypeVar

from rich.console import Console
from rich.table import Table

from penstock.cli.asking import app_at
from penstock.jobs.schedules import Schedules, ScheduleState

T = TypeVar("T")


def ls(queue: str, /, *, url: str | None = None, output: Literal["table", "json"] | None = None) -> None:
    """List the schedules of a queue, with the last tick of each that is done with, and the next.

    Parameters
    ----------
    queue
        The queue's name, with the prefix of its app, if that has one.
    url
        The server, instead of $PENSTOCK_URL.
    output
        table or json (one object per line); a table on a terminal, else json.
    """
    found = _ask(queue, url, lambda schedules: schedules.list())
    if (output or ("table" if sys.stdout.isatty() else "json")) == "json":
        for state in found:
            print(json.dumps(_facts(state)))
        return
    table = Table("name", "times", "zone", "job", "last", "next")
    for state in found:
        after = "paused" if state.is_paused else _shown(state.next)
        table.add_row(state.name, state.expression, state.timezone, state.kind, _shown(state.last), after)
    Console().print(table)


def pause(queue: str, name: str, /, *, url: str | None = None) -> None:
    """Have a schedule tick no more until it is resumed, whatever starts or is deployed meanwhile.

    Parameters
    ----------
    queue
        The queue's name.
    name
        The schedule's.
    url
        The server, instead of $PENSTOCK_URL.
    """
    _ask(queue, url, lambda schedules: schedules.pause(name))


def resume(queue: str, name: str, /, *, url: str | None = None) -> None:
    """Have a schedule tick again, from now on: what it missed meanwhile is not made up for.

    Parameters
    ----------
    queue
        The queue's name.
    name
        The schedule's.
    url
        The server, instead of $PENSTOCK_URL.
    """
    _ask(queue, url, lambda schedules: schedules.resume(name))


def rm(queue: str, name: str, /, *, url: str | None = None) -> None:
    """Forget a schedule that no code declares any more. One that a running worker declares begins anew.

    Parameters
    ----------
    queue
        The queue's name.
    name
        The schedule's.
    url
        The server, instead of $PENSTOCK_URL.
    """
    _ask(queue, url, lambda schedules: schedules.forget(name))


def _ask(queue: str, url: str | None, what: Callable[[Schedules], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with app_at(url) as app:
            return await what(app.jobs(queue).schedules)

    return asyncio.run(ask())


def _facts(state: ScheduleState) -> dict[str, object]:
    return {
        "name": state.name,
        "expression": state.expression,
        "timezone": state.timezone,
        "kind": state.kind,
        "priority": state.priority.value,
        "paused": state.is_paused,
        "last": state.last.isoformat(),
        "next": None if state.next is None else state.next.isoformat(),
    }


def _shown(moment: datetime | None) -> str:
    return "never" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"
