"""Where a server has a message, for the commands that ask; and a word about what could not be looked at."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cli.looking import named_there
from penstock.cli.saying import warn
from penstock.cli.servers import Server, ask
from penstock.cli.usage import NotThereError

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.whereabouts.sighting import Sighting, Whereabouts

NAME_ITS_TOPIC = "if it was published for later, or its id tells no time, name its topic, which is then looked through"


def seen_on(
    server: Server, id: str, *, known: Sequence[tuple[str, str]] = (), topics: Sequence[str] = (), dialect: str
) -> "Whereabouts":
    """What `whereabouts` sees there, of the entries that are known and on the topics that are given, or on every one if
    there are neither. `NotThereError` if that is nothing, and a topic that is given is not there."""
    from penstock.message.wire import Wire
    from penstock.whereabouts.whereabouts import whereabouts

    async def look(app: "Penstock") -> "Whereabouts":
        wire = Wire(dialect)
        seen = await whereabouts(app.backend, id, known=known, topics=topics, wire=wire)
        if known and topics:  # of what is known it has seen all, and nothing else
            seen = _together(seen, await whereabouts(app.backend, id, topics=topics, wire=wire), known)
        if not seen.sightings:
            await named_there(app, topics)
        return seen

    return ask(server, look)


def _together(known: "Whereabouts", more: "Whereabouts", entries: Sequence[tuple[str, str]]) -> "Whereabouts":
    """What both have seen, each thing once: that the entries which are known were published is no news."""
    seen = {_subject(one) for one in known.sightings} | {("published", topic, None, id) for topic, id in entries}
    news = [one for one in more.sightings if _subject(one) not in seen]
    return replace(known, sightings=(*known.sightings, *news), unseen={**more.unseen, **known.unseen})


def _subject(one: "Sighting") -> tuple[str, str, str | None, str | None]:
    return one.what, one.topic, one.group, one.letter_id or one.entry_id


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
