"""`penstock dead`: what groups gave up, to look at, to try again, or to throw away."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from penstock.cli.confirming import Yes, only_tried
from penstock.cli.dialects import Dialect, DialectName
from penstock.cli.given import Count, Rate
from penstock.cli.letters import (
    ALL,
    COLUMNS,
    Chosen,
    Meant,
    Which,
    by_group,
    check_there,
    facts_of,
    letters_of,
    matching,
    row_of,
    the_one,
)
from penstock.cli.printing import Form, print_one, print_rows, print_some
from penstock.cli.progress import progress
from penstock.cli.saying import warn
from penstock.cli.servers import HERE, At, ask
from penstock.cli.usage import NotThereError, UsageError
from penstock.diagnosis.finding import amount
from penstock.errors import TopicError
from penstock.message.ids import canonical
from penstock.overview import Overview

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.delivery.letters import Letter, ReplayReport
    from penstock.events import Event

_LISTED = 100
_MOST_REASONS = 20
_All = Annotated[bool, Parameter(name="--all", negative=(), show_default=False)]


def ls(
    topic: str | None = None,
    /,
    *,
    which: Chosen = ALL,
    limit: Count | None = None,
    dialect: Dialect = "native",
    output: Form = None,
    server: At = HERE,
) -> None:
    """List the dead letters of a topic, oldest first; without a topic, how many each topic has.

    Parameters
    ----------
    topic
        Its name; the lanes of a queue are topics too, as in '{images}:high'.
    limit
        How many at most; 100 unless given.
    """
    if topic is None:
        if not which.is_any or limit is not None or dialect != "native":
            raise UsageError("name a topic to choose among its dead letters.")
        print_rows(ask(server, _counted), output, ("topic", "dead"))
        return
    most = limit or _LISTED
    print_some(ask(server, lambda app: _listed(app, topic, dialect, which, most + 1)), most, output, COLUMNS)


def show(
    topic: str,
    id: str,
    /,
    *,
    group: str | None = None,
    dialect: Dialect = "native",
    output: Form = None,
    server: At = HERE,
) -> None:
    """Say all that is known of one dead letter: why it died, its traceback, and the message itself.

    Parameters
    ----------
    topic
        Its topic.
    id
        The message's UUID, or the letter's own id.
    group
        The group that gave it up, if several did.
    """
    found = ask(server, lambda app: the_one(app, topic, id, group, dialect))
    print_one(facts_of(found, dialect), output)


def replay(
    topic: str,
    /,
    *ids: str,
    which: Chosen = ALL,
    everything: _All = False,
    rate: Rate | None = None,
    dialect: Dialect = "native",
    yes: Yes = False,
    output: Form = None,
    server: At = HERE,
) -> None:
    """Give dead letters back to the groups that gave them up, as first attempts. Other groups see nothing of it.

    Parameters
    ----------
    topic
        Their topic.
    ids
        Of messages or letters.
    everything
        All of them, whatever they are.
    rate
        How many per second at most.
    """
    found = _meant(topic, ids, which, everything, dialect, server)
    absent = ask(server, lambda app: _absent(app, topic, set(found.replayable.values())))
    if not yes:
        only_tried(*_would_replay(topic, found, absent))
    for group in absent:
        warn(f"{topic!r} has no group {group!r}: what it is given waits until one of its workers runs")
    report = _replayed(topic, found.groups, rate, server)
    facts = {"replay_id": report.replay_id, "matched": report.matched, "replayed": report.replayed, "gone": report.gone}
    print_one(facts | {"refused": len(report.refused)}, output)
    for id, reason in list(report.refused.items())[:_MOST_REASONS]:
        warn(f"{id} stays a dead letter: {reason}")
    if report.refused:
        raise TopicError(f"{amount(len(report.refused), 'dead letter')} of {topic!r} cannot be replayed")


async def _absent(app: "Penstock", topic: str, groups: set[str]) -> list[str]:
    """Which of these groups the topic does not have."""
    return sorted(groups - {group.name for group in (await Overview(app.backend).topic(topic)).groups})


def _would_replay(topic: str, found: Meant, absent: Sequence[str]) -> Iterator[str]:
    for group, count in by_group(found.replayable):
        yield f"deliver {amount(count, 'dead letter')} of {topic!r} to {group}"
    for group in absent:
        yield f"have them wait until a worker of group {group!r} runs, which {topic!r} does not have now"
    for why, count in Counter(found.unfit.values()).most_common(_MOST_REASONS):
        yield f"leave {amount(count, 'dead letter')} as {'it is' if count == 1 else 'they are'}: {why}"


def purge(
    topic: str,
    /,
    *ids: str,
    which: Chosen = ALL,
    everything: _All = False,
    dialect: Dialect = "native",
    yes: Yes = False,
    output: Form = None,
    server: At = HERE,
) -> None:
    """Throw dead letters away for good.

    Parameters
    ----------
    topic
        Their topic.
    ids
        Of messages or letters.
    everything
        All of them, whatever they are.
    """
    found = _meant(topic, ids, which, everything, dialect, server)
    if not yes:
        only_tried(
            *(f"destroy {amount(count, 'dead letter')} of {topic!r}, of {one}" for one, count in by_group(found.groups))
        )
    print_one({"topic": topic, "purged": _purged(topic, found.groups, server)}, output)


def _meant(topic: str, ids: tuple[str, ...], which: Which, everything: bool, dialect: DialectName, server: At) -> Meant:
    """Those that the command line means, which it has to say. Every id is one, and there is one."""
    if not ids and which.is_any and not everything:
        raise UsageError("say which dead letters: by their ids, by an option such as --group, or --all.")
    if everything and (ids or not which.is_any):
        raise UsageError("--all means every dead letter of the topic: leave out ids and what else chooses.")

    async def look(app: "Penstock") -> Meant:
        found = Meant()
        missing = dict.fromkeys(canonical(id) or id for id in ids)
        async for letter in matching(letters_of(app, topic, dialect), ids, which):
            found.add(letter)
            missing.pop(letter.letter_id, None)
            missing.pop(letter.id or "", None)
        if missing or not found.groups:
            await check_there(app, topic)
            names = ", ".join(list(missing)[:_MOST_REASONS]) or "of this kind"
            raise NotThereError(f"topic {topic!r} has no dead letter {names}: penstock dead ls lists those there are")
        return found

    return ask(server, look)


async def _counted(app: "Penstock") -> list[dict[str, Any]]:
    topics = await Overview(app.backend).topics()
    for topic in topics:
        if topic.problem is not None:
            warn(f"{topic.name!r} could not be looked at: {topic.problem}")
    return [{"topic": topic.name, "dead": topic.dead} for topic in topics if topic.dead]


async def _listed(app: "Penstock", topic: str, dialect: DialectName, which: Which, most: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async for letter in matching(letters_of(app, topic, dialect), (), which):
        found.append(row_of(letter))
        if len(found) == most:
            break
    if not found:
        await check_there(app, topic)
    return found


def _replayed(topic: str, ids: Collection[str], rate: float | None, server: At) -> "ReplayReport":
    with _counting("replayed", len(ids)) as count:

        def heard(event: "Event") -> None:
            from penstock.events import Replayed

            if isinstance(event, Replayed):
                count(event.count)

        return ask(server, lambda app: letters_of(app, topic, listener=heard).replay(ids=ids, rate=rate))


def _purged(topic: str, ids: Collection[str], server: At) -> int:
    with _counting("purged", len(ids)) as count:

        def is_meant(letter: "Letter") -> bool:
            count(letter.letter_id in ids)
            return letter.letter_id in ids

        return ask(server, lambda app: letters_of(app, topic).purge(where=is_meant))


@contextmanager
def _counting(done: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives what to call with how many more were done. Interrupted, it says how far it came: all before stays so."""
    so_far = 0

    def told(count: int) -> str:
        return f"about {count:,} of {total:,} dead letters were {done}, the others are as they were"

    with progress(done, interrupted=told) as show:

        def count(more: int) -> None:
            nonlocal so_far
            so_far += more
            show(so_far, total)

        yield count
