"""`penstock cron`: the schedules of a queue."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.cli.printing import Form, print_rows
from penstock.cli.servers import HERE, At, Server, ask

if TYPE_CHECKING:
    from penstock.jobs.schedules import Schedules, ScheduleState

T = TypeVar("T")
_COLUMNS = ("name", "expression", "timezone", "kind", "priority", "paused", "last", "next")


def ls(queue: str, /, *, output: Form = None, server: At = HERE) -> None:
    """List the schedules of a queue, with the last tick of each that is done with, and the next.

    Parameters
    ----------
    queue
        The queue's name, with the prefix of its app, if that has one.
    """
    found = _ask(queue, server, lambda schedules: schedules.list())
    print_rows(map(_facts, found), output, _COLUMNS)


def pause(queue: str, name: str, /, *, server: At = HERE) -> None:
    """Have a schedule tick no more until it is resumed, whatever starts or is deployed meanwhile.

    Parameters
    ----------
    queue
        The queue's name.
    name
        The schedule's.
    """
    _ask(queue, server, lambda schedules: schedules.pause(name))


def resume(queue: str, name: str, /, *, server: At = HERE) -> None:
    """Have a schedule tick again, from now on: what it missed meanwhile is not made up for.

    Parameters
    ----------
    queue
        The queue's name.
    name
        The schedule's.
    """
    _ask(queue, server, lambda schedules: schedules.resume(name))


def rm(queue: str, name: str, /, *, server: At = HERE) -> None:
    """Forget a schedule that no code declares any more. One that a running worker declares begins anew.

    Parameters
    ----------
    queue
        The queue's name.
    name
        The schedule's.
    """
    _ask(queue, server, lambda schedules: schedules.forget(name))


def _ask(queue: str, server: Server, what: "Callable[[Schedules], Awaitable[T]]") -> T:
    return ask(server, lambda app: what(app.jobs(queue).schedules))


def _facts(state: "ScheduleState") -> dict[str, object]:
    return {
        "name": state.name,
        "expression": state.expression,
        "timezone": state.timezone,
        "kind": state.kind,
        "priority": state.priority.value,
        "paused": state.is_paused,
        "last": state.last,
        "next": state.next,
    }
