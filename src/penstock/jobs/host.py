"""What a queue has of the app it belongs to."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.jobs.processes import HandlerProcesses

if TYPE_CHECKING:
    from penstock.jobs.queue import JobQueue


def _no_processes() -> HandlerProcesses | None:
    return None


@dataclass(frozen=True)
class Host:
    keep: Callable[["JobQueue"], None]
    """Have the app hold on to a queue that has handlers."""

    at_close: Callable[[Callable[[], Awaitable[None]]], None]
    """Have something awaited before the app lets go of the server."""

    processes: Callable[[], HandlerProcesses | None] = _no_processes
    """Where handlers run that want a process of their own; None if there are none."""
