"""Where an archive goes on with a topic that its checkpoint does not know: where the lake ends.

A checkpoint may be lost, damaged, or that of an older lake, and the group's cursor stands a batch behind the lake when
a driver dies. What the lake has, the lake knows best: the group is brought there before Spark looks at it.
"""

import logging
from functools import partial

from penstock.backend import keys
from penstock.backend.address import Address
from penstock.backend.redis.scripts import load
from penstock.backend.survey import Position
from penstock.errors import LakeError
from penstock.lake import Lake, Reached
from penstock.spark.connection.driver_link import Line
from penstock.spark.options.boundaries import FIRST_ID, order
from penstock.spark.source.backlog import Backlogs
from penstock.spark.source.cursors import Cursors
from penstock.spark.source.loss import unknown_gap
from penstock.spark.source.walking import count_entries

_log = logging.getLogger("penstock.spark")


class Resumption:
    """Of one run, before it starts. What was lost behind the lake's end raises `DataLossError` if `fail`."""

    def __init__(self, lake: Lake, line: Line, address: Address, group: str, *, fail: bool) -> None:
        count = partial(count_entries, address)
        self._lake = lake
        self._line = line
        self._group = group
        self._count = count
        self._cursors = Cursors(line, group, count)
        self._backlogs = Backlogs(self._cursors, count, fail=fail)
        self._fail = fail

    def begin(self, topic: str) -> Position | None:
        """Where the lake ends, and from now on the group too; None if the lake has nothing of the topic.

        The id is the lake's, the rest that of the place where reading goes on: another one if the server fell back.
        """
        reached = self._lake.snapshot().reached.get(topic)
        if reached is None:
            self._check_unused(topic)
            return None
        end = Position(reached.id, self._ordinal(topic, reached), reached.epoch)
        start = self._backlogs.look({topic: end})[topic].position
        if start.epoch:
            self._cursors.bring_to(topic, start)
        return Position(reached.id, start.ordinal, start.epoch)

    def warn_of_stranger(self, topic: str) -> None:
        """A topic that is misspelt will be made, and nothing ever come from it: it is listed, to be found."""
        facts = self._line.facts(topic)
        if facts is None or not (facts["entries-added"] or self._others(topic)):
            _log.warning("topic %r has never had an entry, nor any other reader: is that its name?", topic)
            self._line.script(f"cannot register {topic!r} in {keys.TOPICS}", load("remember"), [keys.TOPICS], topic)

    def _others(self, topic: str) -> list[str]:
        return [group["name"] for group in self._line.groups(topic) if group["name"] != self._group]

    def _ordinal(self, topic: str, reached: Reached) -> int:
        """How many entries were ever added up to the lake's end: the group has counted if it stands there."""
        survey = self._cursors.survey({topic: reached.id})[topic]
        if survey is None or survey.epoch != reached.epoch:
            return 0
        group = self._line.group(topic, self._group)
        if group and group["last-delivered-id"] == reached.id and group["entries-read"] is not None:
            counted: int = group["entries-read"]
            return counted
        first = survey.first or survey.last
        if not survey.present and order(reached.id) < order(first):
            loss = unknown_gap(topic, reached.id, survey)
            if self._fail:
                raise loss
            _log.warning("%s", loss)
        return survey.added - self._count(topic, reached.id, survey.top.id)

    def _check_unused(self, topic: str) -> None:
        """What lies before the group's cursor would be missing in the lake."""
        group = self._line.group(topic, self._group)
        if group and order(group["last-delivered-id"]) > order(FIRST_ID):
            raise LakeError(
                f"group {self._group!r} of topic {topic!r} stands at entry {group['last-delivered-id']}, but the lake"
                f" {self._lake.path} has nothing of the topic: another lake or query uses this group, or the lake was"
                " made anew. Give option group another name (--group): a new group begins at the first entry that is"
                " there"
            )
