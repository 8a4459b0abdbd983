"""Where a server has a message, for the commands that ask."""

from collections.abc import Sequence

from penstock.backend.address import Address, parse
from penstock.backend.embedded import EmbeddedServer
from penstock.backend.redis.blocking import BlockingLink
from penstock.whereabouts import Sighting, whereabouts


def seen_on(address: Address, id: str, known: Sequence[tuple[str, str]] = ()) -> list[Sighting]:
    """What `whereabouts` sees there. `known` are topics and entries that the message is known as."""
    if address.kind == "embedded":
        with EmbeddedServer.start(address.directory, ephemeral=address.ephemeral) as server:
            return seen_on(parse(server.url), id, known)
    with BlockingLink.open(address) as link:
        return whereabouts(link, id, known)
