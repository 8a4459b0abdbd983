"""`penstock lake replay`: messages back from a lake to a topic, or to one group of it."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from penstock.cli.confirming import Yes, only_tried
from penstock.cli.given import Rate
from penstock.cli.moments import Moment
from penstock.cli.progress import progress
from penstock.cli.saying import warn
from penstock.cli.servers import HERE, At
from penstock.diagnosis.finding import amount
from penstock.errors import SetupError
from penstock.lake.selection import Selection

if TYPE_CHECKING:
    from penstock.spark.pipelines.replay import Replay


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A `Selection`, as the command line says it."""

    topics: Annotated[
        tuple[str, ...], Parameter(name=["--topic", "--topics", "-t"], negative=(), show_default=False)
    ] = ()
    """Only of these."""

    ids: Annotated[tuple[str, ...], Parameter(name="--ids", negative=(), show_default=False)] = ()
    """Only these messages."""

    types: Annotated[tuple[str, ...], Parameter(name=["--type", "--types"], negative=(), show_default=False)] = ()
    """Only messages of these types."""

    keys: Annotated[tuple[str, ...], Parameter(name=["--key", "--keys"], negative=(), show_default=False)] = ()
    """Only messages with these keys."""

    since: Moment | None = None
    """Only entries from then on: a moment, like 2026-11-15T08:00Z or yesterday, or an age, like 2d.
    An age means another moment in the next run: to go on with a replay, give moments."""

    until: Moment | None = None
    """Only entries before: a moment, or an age."""

    where: str = ""
    """SQL about the columns of the table raw. It may ask other tables of the lake, too."""

    def selection(self) -> Selection:
        bounds = {"since": self.since, "until": self.until}
        return Selection(topics=self.topics, ids=self.ids, types=self.types, keys=self.keys, where=self.where, **bounds)


def replay(
    *,
    lake: Path,
    id: str,
    selection: Annotated[Choice | None, Parameter(name="*")] = None,
    to: str | None = None,
    group: str | None = None,
    rate: Rate | None = None,
    yes: Yes = False,
    server: At = HERE,
) -> None:
    """Bring messages back from a lake to a topic: in order, and each once per replay, however often it is interrupted.

    Parameters
    ----------
    lake
        The lake's directory.
    id
        A name for this replay. Run again under the same name, it goes on; under another, it begins anew.
    to
        The topic; without it, each message goes to the topic it came from.
    group
        Only this group of the topic gets them; without it, every group does.
    rate
        At most so many messages per second.
    """
    console = Console(file=sys.stderr)
    chosen = selection or Choice()
    url = server.found_beside_environment()
    server.reach()
    job = _replay_of(lake=lake, id=id, to=to, group=group, selection=chosen.selection(), url=url, rate=rate)
    with job.choose() as found:
        total = sum(day.messages for day in found.days)
        if not yes and not total:
            print("Nothing to bring back: no message of the lake is meant")
            return
        if not yes:
            job.check(found)
            days = (
                f"bring back {amount(day.messages, 'message')} of topic {day.topic!r} of {day.date}"
                for day in found.days
            )
            only_tried(*days, f"bring back {amount(total, 'message')} in all, {_where(to, group)}")
        with progress("replaying", console) as show:
            done = job.bring(found, lambda count: show(count, total))
    place = f" to group {group!r}" if group else ""
    before = f"; {done.before:,} {'was' if done.before == 1 else 'were'} there already" if done.before else ""
    console.print(f"Replayed {amount(done.written, 'message')}{place} as {id!r}{before}", highlight=False)
    if done.left:
        warn(f"{amount(done.left, 'message')} came to the lake after the replay was begun: another --id brings them")
    if done.gone:
        have = "has" if done.gone == 1 else "have"
        warn(f"{amount(done.gone, 'message')} {have} left the lake since the replay was begun, without being brought")


def _where(topic: str | None, group: str | None) -> str:
    place = "each to the topic it came from" if topic is None else f"to topic {topic!r}"
    return f"{place}, {'for every group' if group is None else f'for group {group!r} alone'}"


def _replay_of(**what: Any) -> "Replay":
    try:
        from penstock.spark.pipelines.replay import Replay
    except ModuleNotFoundError as error:
        raise SetupError(
            f"a replay needs the sink of Spark ({error}): run pip install 'penstock[spark,lake]'"
        ) from error
    return Replay(**what)
