"""Finding the entries of a message by its UUID, for who wants to see it and for who asks what became of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.backend.base import StreamBackend
from penstock.backend.in_turn import in_turn
from penstock.backend.streams import streams_of
from penstock.errors import AuthenticationError, TopicError
from penstock.events import Listeners
from penstock.message.wire import Wire
from penstock.tail.search import Search


@dataclass(frozen=True)
class Found:
    """What a search over topics came to."""

    entries: Mapping[str, Sequence[str]]
    """For each topic that was looked at, the ids of the message's entries; they may be gone by now."""

    unseen: Mapping[str, str]
    """Topics that could not be looked at, or not to the end, each with the reason: it may be there, too."""


async def looked_on(backend: StreamBackend, topics: Sequence[str]) -> list[str]:
    """All that these names stand for, each once; every registered topic if none is given."""
    named = [name for topic in topics for name in await streams_of(backend, topic)]
    return list(dict.fromkeys(named)) or await backend.topics()


async def find(backend: StreamBackend, id: str, topics: Sequence[str] = (), wire: Wire | None = None) -> Found:
    """The entries of the message on what these names stand for, see `streams_of`, or, if none is given, on every
    registered topic.

    Everywhere it is looked for by what is remembered of messages published once, and around the time that is in a
    UUIDv7, among 10,000 entries or 16 MiB. Where topics are named that is 100,000, and they are also looked through,
    entry by entry, among the last 100,000; and only then a topic that cannot be looked at is an error, and not passed
    by.
    """
    names = await looked_on(backend, topics)
    unseen: dict[str, str] = {}

    async def entries_on(topic: str) -> list[str] | None:
        try:
            looked = await Search(backend, topic, wire or Wire(), Listeners()).entries(id, scan=bool(topics))
        except AuthenticationError as error:
            if not topics or topic in topics:
                raise
            unseen[topic] = str(error)  # a name that was only guessed: there may be no such lane at all
            return None
        except TopicError as error:
            if topics:
                raise
            unseen[topic] = str(error)
            return None
        if looked.unseen:
            unseen[topic] = looked.unseen
        return looked.ids

    found = await in_turn(names, entries_on)
    return Found({name: ids for name, ids in zip(names, found, strict=True) if ids is not None}, unseen)
