"""A change stream that needs no app: a URL, a topic, and who reads it."""

from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeVar

from penstock.backend.entry import Stored
from penstock.backend.redis import RedisBackend
from penstock.changes.ground import Ground, Tools
from penstock.changes.opening import Opening
from penstock.changes.stream import ChangeStream
from penstock.changes.terms import Terms
from penstock.delivery.plan import start_id
from penstock.events import Listeners
from penstock.message import fields
from penstock.message.message import Message
from penstock.message.wire import Wire
from penstock.options import LEASE, ChangeOptions
from penstock.telemetry.logs import Logs

T = TypeVar("T")


class InitialCursor(Enum):
    """Where a reader begins that does not exist yet."""

    BEGINNING = "earliest"
    END = "latest"


class RedisChangeStream(ChangeStream[T]):
    """Reads `topic` as `group_id`, on connections of its own.

    Entries are CloudEvents, or bare JSON, in the field `data`, or Penstock's own with `payload`; `wire` says otherwise.
    `consumer_id` is for people to see: two of one name are two readers that take turns, as any others are. It reads
    ahead up to `buffer_size` entries, `fetch_batch_size` at a time. `initial_cursor` counts for a new group only: the
    beginning, the end, an entry id, or a moment.
    """

    def __init__(  # noqa: PLR0913 - seven are those that users of such streams know
        self,
        url: str | None,
        topic: str,
        group_id: str,
        consumer_id: str = "",
        buffer_size: int = 100,
        fetch_batch_size: int = 10,
        initial_cursor: InitialCursor | str | datetime = InitialCursor.BEGINNING,
        *,
        of: Any = None,
        wire: Wire | None = None,
        lease: timedelta = LEASE,
        coalesce: int = 1,
    ) -> None:
        start = initial_cursor.value if isinstance(initial_cursor, InitialCursor) else initial_cursor
        options = ChangeOptions(buffer_size=buffer_size, fetch_batch_size=fetch_batch_size)
        terms = Terms(
            topic=topic,
            reader=group_id,
            start=start_id(start),
            lease=lease,
            coalesce=coalesce,
            options=options,
            holder=consumer_id,
        )
        self._url = url
        self._listeners = Listeners()
        self._listeners.listen(Logs())
        self._tools: Tools | None = None
        opening = Opening(topic, wire, of) if wire is not None else _EitherOpening(topic, of)
        super().__init__(terms, Ground(self._open, self._listeners), opening)

    async def unsubscribe(self) -> None:
        try:
            await super().unsubscribe()
        finally:
            await self._disconnect()

    async def aclose(self) -> None:
        try:
            await super().aclose()
        finally:
            await self._disconnect()

    async def _open(self) -> Tools:
        if self._tools is None:
            self._tools = Tools.on(await RedisBackend.connect(self._url), self._listeners)
        return self._tools

    async def _disconnect(self) -> None:
        tools, self._tools = self._tools, None
        if tools is not None:
            await tools.aclose()
            await tools.backend.aclose()


class _EitherOpening(Opening):
    """By what an entry has: a field `data` and no `payload`, or anything else."""

    def __init__(self, topic: str, of: Any) -> None:
        super().__init__(topic, Wire(), of)
        self._events = Opening(topic, Wire("cloudevents"), of, any_name=True)

    def message(self, entry: Stored) -> Message[Any]:
        names = entry.fields[::2]
        if fields.DATA in names and fields.PAYLOAD not in names:
            return self._events.message(entry)
        return super().message(entry)
