"""Feeds that read on only when a test says so, and those who follow them."""

from penstock.backend.base import StreamBackend
from penstock.backend.entry import Stored
from penstock.continuity.gap import Gap
from penstock.continuity.place import Place
from penstock.events import Listeners
from penstock.message.wire import Wire
from penstock.tail.feed import Feed
from penstock.tail.hub import Hub
from penstock.tail.places import parse
from penstock.tail.search import Search
from penstock.tail.starting import begin
from penstock.tail.strand import Line, Strand
from tests.support.stage import Stage


async def quiet(stage: Stage, place: Place) -> tuple[Hub, Feed]:
    """A feed that reads on only when it is told to."""
    hub = Hub(stage.app.backend, Listeners())
    feed = hub.feed(stage.topic, place)
    for reader in list(hub._readers.values()):
        await reader.aclose()
    return hub, feed


def strand(hub: Hub, topic: str, place: Place, queue: int = 1000) -> Strand:
    return Strand(hub, topic, Wire(), place, queue, None, Line())


def search(backend: StreamBackend, topic: str) -> Search:
    return Search(backend, topic, Wire(), Listeners())


async def place_of(hub: Hub, topic: str, position: str) -> Place:
    """Where a client begins that has nothing but this."""
    return await begin(hub.backend, topic, parse(position), search(hub.backend, topic))


def all_at_hand(one: Strand) -> list[str | Gap]:
    """Entry ids, and gaps, of all that can be taken without reading."""
    found: list[str | Gap] = []
    while (next_one := one.take()) is not None:
        found.append(next_one.thing.id if isinstance(next_one.thing, Stored) else next_one.thing)
    return found


def drained(one: Strand) -> list[str]:
    """Entry ids of all that is at hand; a gap by its reason."""
    return [found if isinstance(found, str) else found.reason for found in all_at_hand(one)]


async def read_up(one: Strand) -> list[str | Gap]:
    """All that it is given until it has joined the feed."""
    found: list[str | Gap] = []
    while one.is_behind:
        await one.read_on()
        found += all_at_hand(one)
    return found + all_at_hand(one)
