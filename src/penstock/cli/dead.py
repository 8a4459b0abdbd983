"""`penstock dead`: what groups gave up, to look at, to try again, or to throw away."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from penstock.cli.confirming import Yes, only_tried
from penstock.cli.letters import ALL, COLUMNS, Chosen, Which, by_group, facts_of, letters_of, matching, row_of, the_one
from penstock.cli.printing import Form, print_one, print_rows
from penstock.cli.progress import Show, progress
from penstock.cli.saying import warn
from penstock.cli.servers import HERE, At, ask
from penstock.cli.usage import NotThereError, UsageError
from penstock.errors import TopicError

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.delivery.letters import ReplayReport
    from penstock.events import Event

_MOST_REASONS = 20
_All = Annotated[bool, Parameter(name="--all", negative=(), show_default=False)]


def ls(
    topic: str | None = None, /, *, which: Chosen = ALL, limit: int = 100, output: Form = None, server: At = HERE
) -> None:
    """List the dead letters of a topic, oldest first; without a topic, how many each topic has.

    Parameters
    ----------
    topic
        Its name; the lanes of a queue are topics too, as in '{images}:high'.
    limit
        How many at most.
    """
    if limit < 1:
        raise UsageError(f"--limit is a number of at least 1, not {limit}.")
    if topic is None:
        if not which.is_any:
            raise UsageError("name a topic to choose among its dead letters.")
        print_rows(ask(server, _counted), output, ("topic", "dead"))
        return
    found = ask(server, lambda app: _listed(app, topic, which, limit + 1))
    print_rows(found[:limit], output, COLUMNS)
    if len(found) > limit:
        warn(f"there are more than these {limit:,}: --limit shows more of them")


def show(topic: str, id: str, /, *, group: str | None = None, output: Form = None, server: At = HERE) -> None:
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
    print_one(facts_of(ask(server, lambda app: the_one(letters_of(app, topic), topic, id, group))), output)


def replay(
    topic: str,
    /,
    *ids: str,
    which: Chosen = ALL,
    everything: _All = False,
    rate: float | None = None,
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
    found = _meant(topic, ids, which, server, everything=everything)
    if not yes:
        only_tried(*(f"deliver {count:,} dead letters of {topic!r} to {one}" for one, count in by_group(found)))
    report = _replayed(topic, found, rate, server)
    facts = {"replay_id": report.replay_id, "matched": report.matched, "replayed": report.replayed, "gone": report.gone}
    print_one(facts | {"refused": len(report.refused)}, output)
    for id, reason in list(report.refused.items())[:_MOST_REASONS]:
        warn(f"{id} stays a dead letter: {reason}")
    if report.refused:
        raise TopicError(f"{len(report.refused):,} dead letters of {topic!r} cannot be replayed: edit or purge them")


def purge(
    topic: str,
    /,
    *ids: str,
    which: Chosen = ALL,
    everything: _All = False,
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
    found = _meant(topic, ids, which, server, everything=everything)
    if not yes:
        only_tried(*(f"destroy {count:,} dead letters of {topic!r}, of {one}" for one, count in by_group(found)))
    purged = ask(server, lambda app: letters_of(app, topic).purge(ids=found))
    print_one({"topic": topic, "purged": purged}, output)


def _meant(topic: str, ids: tuple[str, ...], which: Which, server: At, *, everything: bool) -> dict[str, str]:
    """Those that the command line means, which it has to say: letter id → group. There is at least one."""
    if not ids and which.is_any and not everything:
        raise UsageError("say which dead letters: by their ids, by an option such as --group, or --all.")
    if everything and (ids or not which.is_any):
        raise UsageError("--all means every dead letter of the topic: leave out ids and what else chooses.")

    async def look(app: "Penstock") -> dict[str, str]:
        return {one.letter_id: one.group async for one in matching(letters_of(app, topic), ids, which)}

    found = ask(server, look)
    if not found:
        raise NotThereError(f"topic {topic!r} has no such dead letters: penstock dead ls {topic} lists those there are")
    return found


async def _counted(app: "Penstock") -> list[dict[str, Any]]:
    from penstock.overview import Overview

    return [{"topic": topic.name, "dead": topic.dead} for topic in await Overview(app.backend).topics() if topic.dead]


async def _listed(app: "Penstock", topic: str, which: Which, most: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async for letter in matching(letters_of(app, topic), (), which):
        found.append(row_of(letter))
        if len(found) == most:
            break
    return found


def _replayed(topic: str, ids: Collection[str], rate: float | None, server: At) -> "ReplayReport":
    with progress("replaying") as show:
        counting = _Counting(show, len(ids))
        return ask(server, lambda app: letters_of(app, topic, counting.heard).replay(ids=ids, rate=rate))


class _Counting:
    """Shows how many were replayed so far."""

    def __init__(self, show: Show, total: int) -> None:
        self._show, self._total, self._done = show, total, 0

    def heard(self, event: "Event") -> None:
        from penstock.events import Replayed

        if isinstance(event, Replayed):
            self._done += event.count
            self._show(self._done, self._total)
