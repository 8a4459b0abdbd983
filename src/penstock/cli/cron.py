"""`penstock cron`: the schedules of a queue."""

from typing import TYPE_CHECKING

from penstock.cli.confirming import Yes, only_tried
from penstock.cli.pausing import paused_until, resumed
from penstock.cli.printing import Form, print_rows
from penstock.cli.queues import USUAL, ask_known_queue, ask_queue
from penstock.cli.servers import HERE, At, Server
from penstock.cli.shown import moment_text
from penstock.cli.usage import NotThereError
from penstock.diagnosis.finding import command

if TYPE_CHECKING:
    from penstock.jobs.schedules import ScheduleState

_COLUMNS = ("name", "expression", "timezone", "kind", "priority", "paused", "last", "next")


def ls(queue: str, /, *, output: Form = None, server: At = HERE) -> None:
    """List the schedules of a queue, with the last tick of each that is done with, and the next.

    Parameters
    ----------
    queue
        The queue's name; if its app has a prefix, like 'shop:{images}'.
    """
    found = ask_known_queue(server, queue, USUAL, lambda queue: queue.schedules.list())
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
    was_paused = _known(queue, name, server).is_paused
    ask_queue(server, queue, USUAL, lambda queue: queue.schedules.pause(name))
    print(f"Schedule {name!r} of {queue!r} {paused_until(was_paused, command('cron', 'resume', queue, name))}")


def resume(queue: str, name: str, /, *, server: At = HERE) -> None:
    """Have a schedule tick again, from now on: what it missed meanwhile is not made up for.

    Parameters
    ----------
    queue
        The queue's name.
    name
        The schedule's.
    """
    was_paused = _known(queue, name, server).is_paused
    ask_queue(server, queue, USUAL, lambda queue: queue.schedules.resume(name))
    print(f"Schedule {name!r} of {queue!r} {resumed(was_paused)}")


def rm(queue: str, name: str, /, *, yes: Yes = False, server: At = HERE) -> None:
    """Forget a schedule that no code declares any more. One that a running worker declares begins anew.

    Parameters
    ----------
    queue
        The queue's name.
    name
        The schedule's.
    """
    state = _known(queue, name, server)
    if not yes:
        only_tried(f"forget schedule {name!r} of queue {queue!r}, and that it ticked up to {moment_text(state.last)}")
    ask_queue(server, queue, USUAL, lambda queue: queue.schedules.forget(name))


def _known(queue: str, name: str, server: Server) -> "ScheduleState":
    found = ask_queue(server, queue, USUAL, lambda queue: queue.schedules.list())
    for state in found:
        if state.name == name:
            return state
    names = ", ".join(state.name for state in found) or "none"
    raise NotThereError(f"queue {queue!r} has no schedule {name!r}: there are {names}")


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
