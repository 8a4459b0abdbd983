"""What those who read in sequence share: the connection, the thread that keeps turns, and who waits for news."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Self

from penstock.backend.base import StreamBackend
from penstock.changes.bells import Bells
from penstock.changes.keeper import TurnKeeper
from penstock.changes.turn import Turn
from penstock.events import Listeners, Scope, Trouble


class Tools(NamedTuple):
    """Of one connection."""

    backend: StreamBackend
    keeper: TurnKeeper
    bells: Bells

    @classmethod
    def on(cls, backend: StreamBackend, listeners: Listeners) -> Self:
        def complain(turn: Turn, error: Exception) -> None:
            listeners.emit(Trouble(Scope.LEASE, error, topic=turn.topic, group=turn.reader))

        return cls(backend, TurnKeeper(backend, complain), Bells(backend))

    async def aclose(self) -> None:
        """The connection stays open."""
        await self.bells.aclose()
        await self.keeper.aclose()


class Ground:
    """Where a reader reads; connected when that is needed."""

    def __init__(self, open: Callable[[], Awaitable[Tools]], listeners: Listeners) -> None:
        self.open = open
        self.listeners = listeners
