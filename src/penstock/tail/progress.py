"""How far a tail with durable cursors has come, and how much of that the server knows."""

from collections.abc import Awaitable, Callable
from functools import partial

from penstock.backend.base import StreamBackend
from penstock.backend.entry import Moved
from penstock.continuity.place import FIRST_ID, Place
from penstock.errors import CursorNotFoundError
from penstock.tail.places import Cursor


class Progress:
    """Commits what is done, for cursors that say after how many items: an item is done when the next is asked for."""

    def __init__(self, backend: StreamBackend) -> None:
        self._backend = backend
        self._given: tuple[str, Cursor, Place] | None = None
        self._done: dict[str, tuple[Cursor, Place]] = {}
        self._uncommitted = 0
        self.nameless: dict[str, Cursor] = {}
        """By topic, cursors from before there was a stream: the server does not know yet of which one they are."""

        self.is_due = False
        """So many items are done that the server shall know of them now."""

    def give(self, topic: str, cursor: Cursor, place: Place) -> Callable[[], Awaitable[bool]]:
        """An item is handed out; what this returns is how its taker commits it."""
        self._given = topic, cursor, place
        return partial(self._commit, topic, cursor, place)

    async def name(self, topic: str, epoch: str) -> None:
        """There is a stream now. If it is another by the time that the cursor is opened again, that shows."""
        before_all = Place(FIRST_ID, epoch, 0)
        moved = await self._backend.move_cursor(topic, self.nameless[topic].name, before_all.to_hold())
        if moved is not Moved.OTHER:  # else it is gone already; whatever comes next has an epoch too
            del self.nameless[topic]

    def finish_last(self) -> None:
        """The next item is asked for, so the last one is done."""
        given, self._given = self._given, None
        if given is None or given[1].every is None:
            return
        topic, cursor, place = given
        self._done[topic] = cursor, place
        self._uncommitted += 1
        self.is_due = self.is_due or self._uncommitted >= given[1].every

    async def commit_done(self) -> None:
        """Commit all that is done. What fails is still to be committed, and what comes behind it."""
        for topic, (cursor, place) in list(self._done.items()):
            try:
                await self._commit(topic, cursor, place)
            except CursorNotFoundError:
                del self._done[topic]  # it would never succeed
                raise
            del self._done[topic]
        self._uncommitted, self.is_due = 0, False

    @property
    def oldest(self) -> tuple[str, str]:
        """The topic that is to be committed first, and the name of its cursor; while anything is to be committed."""
        topic, (cursor, _) = next(iter(self._done.items()))
        return topic, cursor.name

    async def _commit(self, topic: str, cursor: Cursor, place: Place) -> bool:
        moved = await self._backend.move_cursor(topic, cursor.name, place.to_hold())
        if moved is Moved.FORGOTTEN:
            raise CursorNotFoundError(topic, cursor.name, "somebody has removed this cursor: open the tail again")
        return moved is Moved.MOVED
