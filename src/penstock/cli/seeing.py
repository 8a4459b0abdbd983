"""Where a server has a message, for the commands that ask; and a word about what could not be looked at."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.cli.looking import named_there
from penstock.cli.saying import warn
from penstock.cli.servers import Server, ask
from penstock.cli.usage import NotThereError

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.whereabouts.sighting import Whereabouts

NAME_ITS_TOPIC = "if it was published for later, or its id tells no time, name its topic, which is then looked through"


def seen_on(
    server: Server, id: str, *, known: Sequence[tuple[str, str]] = (), topics: Sequence[str] = (), dialect: str
) -> "Whereabouts":
    """What `whereabouts` sees there. `NotThereError` if that is nothing, and a topic that is given is not there."""
    from penstock.message.wire import Wire
    from penstock.whereabouts.whereabouts import whereabouts

    async def look(app: "Penstock") -> "Whereabouts":
        seen = await whereabouts(app.backend, id, known=known, topics=topics, wire=Wire(dialect))
        if not seen.sightings:
            await named_there(app, topics)
        return seen

    return ask(server, look)


def told(is_found: object, unseen: Mapping[str, str], nowhere: str, meaning: str = "", *hints: str) -> None:
    """Say beside the answer what could not be looked at, and why; `NotThereError` if there is no answer.

    What it means that it is `nowhere` is said only where all was looked at.
    """
    passed = [f"{topic!r} could not be looked at, or not all of it: {reason}" for topic, reason in unseen.items()]
    if not is_found:
        known = nowhere if passed or not meaning else f"{nowhere}: {meaning}"
        raise NotThereError("; ".join(filter(None, ["; and ".join([known, *passed]), *hints])))
    for one in passed:
        warn(f"topic {one}")
