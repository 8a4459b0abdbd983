"""The driver's part of a streaming read: where the query begins, and what the next batch holds."""

import logging
import time
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from penstock.backend.survey import Position
from penstock.spark.connection.driver_link import Line
from penstock.spark.connection.server import Server
from penstock.spark.connection.topics import topics_of
from penstock.spark.options.boundaries import EARLIEST, GROUP, LATEST
from penstock.spark.options.source import SourceOptions
from penstock.spark.source.backlog import Backlog, Backlogs
from penstock.spark.source.cursors import Cursors
from penstock.spark.source.loss import short_read
from penstock.spark.source.offsets import Offset, Piece
from penstock.spark.source.planning import Split, shares, sizes
from penstock.spark.source.walking import Trails, count_entries

_log = logging.getLogger("penstock")
_DELAY = timedelta(minutes=15)


class Planner:
    """Lives as long as the query does in the driver's process for it; one thread uses it."""

    def __init__(self, options: SourceOptions, server: Server) -> None:
        server.hold()
        count = partial(count_entries, server.address)
        self._options = options
        self._line = Line(server.address)
        self._cursors = Cursors(self._line, options.group, count)
        self._backlogs = Backlogs(self._cursors, count, fail=options.fail_on_data_loss)
        self._trails = Trails(server.address)
        self._split = Split(options.min_partitions, options.entries_per_partition)
        self._targets: Mapping[str, Position] | None = None
        self._committed: Mapping[str, Position] = {}
        self._shared: set[str] = set()
        self._retired: set[str] = set()
        self._waiting_since = time.monotonic()

    def begin(self) -> Offset:
        """Where a query starts that has no checkpoint yet."""
        if self._options.group is None:
            _log.warning("without the option group nothing keeps entries from being trimmed before they are read")
            if self._options.start == LATEST:
                _log.warning(
                    "startingPosition=latest without the option group is found anew by each start of the query until"
                    " Spark has written down a batch: what was added before a crash until then is not read; a group"
                    " keeps the place"
                )
        topics = topics_of(self._options, self._line)
        return Offset({topic: self._cursors.begin(topic, self._options.start) for topic in topics})

    def stop_at_now(self) -> None:
        """From here on, behave as if nothing new came."""
        seen = self._cursors.survey(dict.fromkeys(topics_of(self._options, self._line), EARLIEST.id))
        self._targets = {stream: survey.top for stream, survey in seen.items() if survey is not None}

    def committed(self, offset: Offset) -> None:
        """Spark is done with everything up to here: let the group's cursor show it."""
        named = self._still_named(offset.streams)
        moved = [(name, at) for name, at in named.items() if self._committed.get(name) != at]
        for stream in set(self._cursors.advance(moved)) - self._shared:
            self._shared.add(stream)
            _log.warning("group %r of %r has consumers now, so its cursor stays", self._options.group, stream)
        self._committed = offset.streams

    def backlogs(self, offset: Offset) -> dict[str, Backlog]:
        """What is there to be read, of all that the options name now; with a pattern, also of all it named before."""
        positions = self._still_named(offset.streams)
        for topic in topics_of(self._options, self._line):
            if topic not in positions:  # it came after the query: what it holds is new
                positions[topic] = self._cursors.begin(topic, GROUP if self._options.group else EARLIEST)
        found = self._backlogs.look(positions)
        if self._targets is None:
            return found
        nothing = {name: Backlog(one.position, 0, one.position) for name, one in found.items()}
        past = {name: at for name, at in self._targets.items() if name in found}
        return nothing | {name: self._backlogs.until(name, found[name], at) for name, at in past.items()}

    def next(self, offset: Offset, backlogs: Mapping[str, Backlog], *, limited: bool) -> Offset | None:
        """Where the next batch ends; None if there is to be none now."""
        rows = {name: backlog.rows for name, backlog in backlogs.items()}
        if not any(rows.values()) or (limited and self._should_wait(sum(rows.values()))):
            return None
        self._waiting_since = time.monotonic()
        wanted = self._within_limits(rows, backlogs) if limited else rows
        pieces = self._split.pieces(wanted)
        streams, splits = dict(offset.streams), {}
        for name, count in wanted.items():
            backlog = backlogs[name]
            if count:
                streams[name], splits[name] = self._cut(name, backlog, count, pieces[name])
            else:
                streams.setdefault(name, backlog.position)
            if limited and 0 < count < backlog.rows:
                self._trails.walk_ahead(name, min(count, backlog.rows - count), backlog.top.id)
        return Offset(streams, {name: found for name, found in splits.items() if found})

    def check(self, offset: Offset) -> None:
        """For a batch that was planned earlier: raise `DataLossError` if its streams are not those of the plan."""
        self._backlogs.check({name: offset.streams[name] for name in offset.splits})

    def close(self) -> None:
        self._trails.stop()
        self._line.close()

    def _still_named(self, streams: Mapping[str, Position]) -> dict[str, Position]:
        """Without topics that the options named once: they rest at their positions, for whoever names them again."""
        if self._options.topics_pattern is not None:
            return dict(streams)
        retired = streams.keys() - set(topics_of(self._options, self._line))
        for topic in sorted(retired - self._retired):
            _log.warning("topic %r is in the checkpoint but not in the options: it is not read any more", topic)
        self._retired |= retired
        return {name: at for name, at in streams.items() if name not in retired}

    def _should_wait(self, rows: int) -> bool:
        least = self._options.min_entries_per_trigger
        if least is None or self._targets is not None or rows >= least:
            return False
        delay = self._options.max_trigger_delay or _DELAY
        return time.monotonic() - self._waiting_since < delay.total_seconds()

    def _within_limits(self, rows: Mapping[str, int], backlogs: Mapping[str, Backlog]) -> Mapping[str, int]:
        if (most := self._options.max_bytes_per_trigger) is not None:
            rows = self._within_bytes(most, rows, backlogs)
        if (most := self._options.max_entries_per_trigger) is not None:
            rows = shares(most, rows)
        return rows

    def _within_bytes(self, most: int, rows: Mapping[str, int], backlogs: Mapping[str, Backlog]) -> dict[str, int]:
        """By what entries weigh on average; a stream that has a share gets at least one entry, whatever it weighs."""
        weights = {
            name: self._trails.entry_bytes(name, backlogs[name].position.id, backlogs[name].top.id)
            for name, count in rows.items()
            if count
        }
        bytes_there = {name: int(rows[name] * weight) for name, weight in weights.items()}
        given = shares(most, bytes_there)
        return dict(rows) | {
            name: max(1, int(given[name] / weight))
            for name, weight in weights.items()
            if given[name] < bytes_there[name]
        }

    def _cut(self, name: str, backlog: Backlog, rows: int, pieces: int) -> tuple[Position, tuple[Piece, ...]]:
        at, top = backlog.position, backlog.top
        if rows == backlog.rows and pieces == 1:
            return top, (Piece(at.id, top.id, rows),)
        if backlog.is_new:
            self._trails.forget(name)
        found = tuple(self._trails.cut(name, at.id, sizes(rows, pieces), top.id))
        there = sum(piece.rows for piece in found)
        if there != rows:
            loss = short_read(name, at.id, top.id, rows, there)
            if self._options.fail_on_data_loss:
                raise loss
            _log.warning("%s", loss)
        end = found[-1].upto if found else at.id
        return Position(end, at.ordinal + there, top.epoch), found
