"""A day of a replay, as it was chosen when the replay was begun, to one stream: part by part."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import LakeError
from penstock.spark.pipelines.chosen import Chosen, Day, Part, Place, up_to
from penstock.spark.pipelines.replay_ledger import Begun, Ledger, Reached
from penstock.spark.pipelines.replay_progress import Progress
from penstock.spark.pipelines.to_group import write_to_group
from penstock.spark.sink.outflow import patiently
from penstock.spark.sink.writers import Sink

T = TypeVar("T")
PART = 100_000
"""Messages of which the server knows the ids at a time: more cost it memory, and each message more."""


@dataclass(frozen=True)
class DayReplay:
    """One day to one stream."""

    day: Day
    """As it was chosen when the replay was begun."""

    found: int
    """Messages of it that are chosen now."""

    sink: Sink
    ledger: Ledger
    group: str | None

    def bring(self, chosen: Chosen, progress: Progress) -> None:
        """What is not done of it, part by part."""
        day, reached = self.day, self.reached()
        # All is asked before the messages are: a connection answers one question at a time.
        parts = [] if reached.is_finished else self._parts(chosen, reached)
        progress.pass_by(max(0, self.found - sum(part.rows for part in parts)), reached.rows)
        rows = reached.rows
        if not reached.is_finished:
            messages = _Cut(chosen.messages(day, reached.after))
            for number, part in enumerate(parts, reached.part):
                self._ask(partial(self.ledger.begin, day=day, part=number, begun=Begun(rows, part.end)))
                rows += self._write(number, progress.watched(messages.take(part.end)))
            self._ask(partial(self.ledger.finish, day=day, rows=rows))
        progress.gone += max(0, day.messages - rows)

    def reached(self) -> Reached:
        return self._ask(partial(self.ledger.reached, day=self.day))

    def more(self, chosen: Chosen) -> int:
        """How many more messages there are up to its end than were chosen; what is behind that is never brought."""
        return max(0, self.still(chosen) - self.day.messages)

    def still(self, chosen: Chosen) -> int:
        """How many are chosen up to its end now."""
        return self.found and self.found - chosen.behind(self.day, self.day.end)

    def _parts(self, chosen: Chosen, reached: Reached) -> list[Part]:
        """One that was begun ends where it was to end then, whatever has come to the lake since."""
        if reached.begun is None:
            return chosen.parts(self.day, reached.after, PART)
        end = reached.begun.end
        rows = chosen.behind(self.day, reached.after) - chosen.behind(self.day, end)
        return [Part(rows, end), *chosen.parts(self.day, end, PART)]

    def _write(self, part: int, rows: Iterator[Any]) -> int:
        """Write a part; returns how many messages it has brought."""
        attempt, stream = self.ledger.attempt(self.day, part), self.ledger.stream
        if self.group is None:
            written = self.sink.write(attempt, rows)
        else:
            written = write_to_group(self.sink, attempt, rows, stream, self.ledger.replay)
        # An earlier run may have brought some that have left the lake since. One without messages is done, too: what is
        # behind it may have been written by an earlier run.
        brought = max(sum(written.rows.values()), self._ask(partial(self.ledger.brought, day=self.day, part=part)))
        self.sink.finish([replace(written, rows={stream: brought})])
        return brought

    def _ask(self, what: Callable[[BlockingLink], T]) -> T:
        return patiently(self.sink.server.address, what)


def check_repeated(chosen: Chosen, days: Sequence[DayReplay]) -> None:
    """`LakeError` if messages that were brought may be chosen again, by an entry behind the one that was.

    That is not chosen as long as the first one is there. Once that has left the lake, as by a drop, nothing tells it
    from one that was chosen in its own right, but that there are more of them.
    """
    lacking: dict[str, DayReplay] = {}
    for each in days:
        before = lacking.get(each.day.topic)
        if before and (more := each.more(chosen)) and not each.reached().is_finished:
            raise LakeError(
                f"replay {each.ledger.replay!r} to {each.ledger.stream!r} cannot go on: since it was begun, messages of"
                f" {each.day.topic!r} of {before.day.date} which it has brought have left the lake, and {more:,} more"
                f" are chosen of {each.day.date}, which may be the same ones again. Look at what has arrived, and"
                " replay the rest under another id"
            )
        if each.still(chosen) < each.day.messages and each.reached() != Reached():
            lacking.setdefault(each.day.topic, each)


class _Cut:
    """The messages of a day, a part at a time."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._rest: Any = None

    def take(self, end: Place) -> Iterator[Any]:
        """Those up to a place that were not taken.

        Not so many as were counted: a condition with `random()` holds for others each time, and one that were written
        beyond the end of its part would come again with the next, if the replay was cut short in between.
        """
        while (batch := self._rest if self._rest is not None else next(self._batches, None)) is not None:
            rows = up_to(batch, end)
            self._rest = batch.slice(rows) if rows < batch.num_rows else None
            if rows:
                yield batch.slice(0, rows).drop_columns(["us", "seq"])
            if self._rest is not None:
                return
