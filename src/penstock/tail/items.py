"""What a tail gives: messages, entries that are none, and gaps."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, structs

from penstock.continuity.gap import Gap
from penstock.continuity.place import Place
from penstock.errors import ConfigurationError, MalformedError
from penstock.message.message import Message
from penstock.message.wire import Wire

Commit: TypeAlias = Callable[[], Awaitable[bool]]


class Stamped(Struct, frozen=True):
    """One entry of a topic, and where it is."""

    topic: str
    entry_id: str

    place: Place
    """Behind it."""

    fields: Sequence[bytes]
    """Names and values as they are stored, alternating."""

    committing: Commit | None

    @property
    def epoch(self) -> str:
        """Of the stream it is in."""
        return self.place.epoch

    @property
    def position(self) -> str:
        """Where to go on behind it, in any later tail of the topic: `<epoch>.<entry id>`.

        Where it was read after others that may be missing, and this could not be told yet, it is
        `<epoch>.<entry id>.<ordinal>`, so that it can be told then.
        """
        return self.place.position

    async def commit(self) -> bool:
        """Move the tail's durable cursor up to here; False if it was here or further, or the stream is another by now.

        `ConfigurationError` if the tail has no cursor, `CursorNotFoundError` if somebody has removed it.
        """
        if self.committing is None:
            raise ConfigurationError(
                f"the tail of {self.topic!r} has no durable cursor to commit to: give it after=Cursor(name)"
            )
        return await self.committing()


class Tailed(Stamped, frozen=True, gc=False):
    """A message, as every follower of the topic sees it."""

    wire: Wire
    opened: Message[Any] | None = None

    @property
    def message(self) -> Message[Any]:
        """What was said. It is decoded when it is first looked at; `fields` costs nothing."""
        if self.opened is None:
            structs.force_setattr(self, "opened", self.wire.unpack(self.topic, self.entry_id, self.fields))
        return self.opened  # type: ignore[return-value]


class Unreadable(Stamped, frozen=True):
    """An entry that is no message; `error` says why. It harms nobody: what is behind it follows."""

    error: MalformedError


Item: TypeAlias = Tailed | Unreadable | Gap
