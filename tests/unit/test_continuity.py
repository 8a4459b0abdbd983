"""Going on from a place: whatever was added behind it is given, or is in a gap, and the gaps count right."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.backend.entry import Glimpse, Stored
from penstock.backend.facts import position as order
from penstock.backend.survey import Survey
from penstock.continuity.gap import Gap
from penstock.continuity.place import FIRST_ID, Place, predecessor
from penstock.continuity.step import go_on
from penstock.tail.places import id_before, parse

pytestmark = pytest.mark.timeout(180)  # many examples, each of which takes long where the machine is busy


@dataclass
class Stream:
    """A stream as a server keeps it, with the numbers it would show."""

    epoch: str = "e1"
    there: list[int] = field(default_factory=list)
    added: int = 0
    last: int = 0
    deleted: int = 0

    def add(self, count: int) -> None:
        for _ in range(count):
            self.last += 1
            self.added += 1
            self.there.append(self.last)

    def trim(self, keep: int) -> None:
        self.there = self.there[-keep:] if keep else []

    def delete(self, nth: int) -> None:
        if self.there:
            gone = self.there.pop(nth % len(self.there))
            self.deleted = max(self.deleted, gone)

    def seen_from(self, id: str, count: int) -> Glimpse:
        here = order(id)[0]
        behind = [number for number in self.there if number > here]
        survey = Survey(
            self.epoch,
            f"{self.there[0]}-0" if self.there else None,
            f"{self.there[-1]}-0" if self.there else None,
            f"{self.last}-0",
            f"{self.deleted}-0",
            len(self.there),
            self.added,
            present=here in self.there,
        )
        entries = [Stored(f"{number}-0", [b"1"]) for number in behind[:count]]
        return Glimpse(survey, entries, complete=len(behind) < count)


def follow(stream: Stream, place: Place, count: int, spare: int = 0) -> tuple[list[Gap], list[int], Place]:
    """Asks for more than it takes, as somebody does whose page is full: no less must come of that."""
    step = go_on("t", place, stream.seen_from(place.id, count + spare)).within(count)
    return [step.gap] if step.gap else [], [order(entry.id)[0] for entry in step.entries], step.place


def in_range(gap: Gap) -> set[int]:
    """All that may be missing there, as far as the gap tells."""
    assert gap.upto is not None
    return set(range(order(gap.after)[0] + 1, order(gap.upto)[0] + 1))


@dataclass
class Forgetful(Stream):
    """A stream of a server that falls back to what it was. No id is ever given to two entries."""

    added_ever: int = 0
    told: dict[int, int] = field(default_factory=dict)
    """Of all that was added in the history that the server knows of: the how-manieth, ever."""

    falls: int = 0
    saved: "Forgetful | None" = None

    def add(self, count: int) -> None:
        for _ in range(count):
            self.last += 1
            while self.last % MOST_FALLS != self.falls:
                self.last += 1
            self.added += 1
            self.added_ever += 1
            self.told[self.last] = self.added_ever
            self.there.append(self.last)

    def save(self, _: int) -> None:
        self.saved = replace(self, there=[*self.there], told={**self.told})

    def fall_back(self, _: int) -> None:
        if self.saved is not None and self.falls + 1 < MOST_FALLS:
            old = self.saved
            self.there, self.told = [*old.there], {**old.told}
            self.added, self.last, self.deleted = old.added, old.last, old.deleted
            self.falls += 1


MOST_FALLS = 4
CHANGES = (
    st.tuples(st.just("add"), st.integers(0, 6)),
    st.tuples(st.just("trim"), st.integers(0, 4)),
    st.tuples(st.just("delete"), st.integers(0, 20)),
)
DOINGS = st.lists(st.one_of(*CHANGES, st.tuples(st.just("read"), st.integers(1, 5))), max_size=40)
SOME = st.lists(st.one_of(*CHANGES, st.just(("save", 0)), st.just(("fall_back", 0))), max_size=5)
BACKWARDS = st.tuples(SOME, SOME, SOME).map(
    lambda parts: [*parts[0], ("save", 0), *parts[1], ("read", 0), ("fall_back", 0), *parts[2]]
)


@settings(max_examples=400)
@given(DOINGS, st.integers(0, 5), st.integers(0, 5))
@example([("add", 60), ("read", 16), ("delete", 19), ("delete", 57), ("read", 16), ("read", 16)], 0, 0)
@example([("add", 9), ("delete", 1), ("read", 3), ("delete", 4), ("read", 3)], 0, 4)
def test_given_and_missing_add_up_whatever_is_trimmed_and_deleted(doings: list[Any], already: int, spare: int) -> None:
    stream = Stream()
    stream.add(already)
    survey = stream.seen_from(FIRST_ID, 1).survey
    assert survey is not None
    place = Place.at(survey.top)
    begun, got, missing, told = stream.added, [], 0, set()
    for what, number in [*doings, ("read", 1000), ("read", 1000)]:
        if what != "read":
            getattr(stream, what)(number)
            continue
        gaps, numbers, place = follow(stream, place, number, spare)
        got += numbers
        for gap in gaps:
            assert gap.count is not None
            assert gap.count > 0
            missing += gap.count
            told |= in_range(gap)
            assert len(in_range(gap)) >= gap.count
    assert got == sorted(set(got))
    # What was read before it was removed was given all the same.
    assert len(got) + missing == stream.added - begun
    assert set(range(begun + 1, stream.last + 1)) - set(got) <= told
    assert place.ordinal == stream.added


@settings(max_examples=300)
@given(DOINGS, st.integers(0, 12))
def test_a_bare_id_is_never_passed_by_in_silence(doings: list[Any], at: int) -> None:
    """Without a count there may be a gap in which nothing is missing; but nothing is ever missing without a gap."""
    stream = Stream()
    for what, number in doings:
        if what != "read":
            getattr(stream, what)(number)
    gaps, numbers, place = follow(stream, Place(f"{at}-0", ""), 1000)
    wanted = set(range(at + 1, stream.last + 1))
    if at > stream.last:
        assert [gap.reason for gap in gaps] == ["rolled back"]
    elif wanted - set(numbers):
        assert [gap.count for gap in gaps] == [None]
    else:
        assert set(numbers) == wanted
    assert place.ordinal == stream.added


@settings(max_examples=400)
@given(BACKWARDS)
def test_behind_a_position_nothing_is_passed_by_in_silence_though_the_server_falls_back(doings: list[Any]) -> None:
    """The position is one of the newest entry at some moment. What was added since is given, or there is a gap."""
    stream, place, read, falls = Forgetful(), Place(FIRST_ID, ""), 0, 0
    for what, number in doings:
        if what != "read":
            getattr(stream, what)(number)
        elif stream.there:
            place, read, falls = Place(f"{stream.there[-1]}-0", "e1"), stream.added_ever, stream.falls
    gaps, given_ids, _ = follow(stream, place, 1000)
    if place.id != FIRST_ID:
        given_since = {stream.told[id] for id in given_ids}
        assert {since for since in stream.told.values() if since > read} <= given_since or gaps
    assert stream.falls > falls or "rolled back" not in [gap.reason for gap in gaps]


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_fall_back_shows_by_the_entry_that_was_read_and_is_not_there(trimmed: bool) -> None:
    stream = Stream(there=[1, 2, 5, 7, 8, 12], added=6, last=12)
    if trimmed:
        stream.trim(5)
    gaps, numbers, _ = follow(stream, Place("9-0", "e1"), 10)
    assert (gaps, numbers) == ([Gap("t", FIRST_ID, "9-0", None, "rolled back")], [12])
    assert follow(stream, Place("9-0", ""), 10)[:2] == ([], [12])


def test_a_stream_of_another_epoch_is_read_from_its_beginning() -> None:
    stream = Stream("e2")
    stream.add(3)
    gaps, numbers, place = follow(stream, Place("2-0", "e1", 2), 10)
    assert (gaps, numbers) == ([Gap("t", "2-0", None, None, "recreated")], [])
    assert follow(stream, place, 10)[:2] == ([], [1, 2, 3])


def test_a_stream_that_is_gone_is_told_once() -> None:
    nothing = Glimpse(None, [], complete=True)
    step = go_on("t", Place("2-0", "e1", 2), nothing)
    assert step.gap == Gap("t", "2-0", None, None, "gone")
    assert go_on("t", step.place, nothing).gap is None


def test_an_id_alone_of_a_topic_that_does_not_exist_is_one_of_a_stream_that_is_gone() -> None:
    nothing = Glimpse(None, [], complete=True)
    step = go_on("t", Place("99999999999999-0", ""), nothing)
    assert step.gap == Gap("t", "99999999999999-0", None, None, "gone")
    stream = Stream()
    stream.add(2)
    assert follow(stream, step.place, 10)[:2] == ([], [1, 2])
    assert go_on("t", Place(FIRST_ID, ""), nothing).gap is None


@pytest.mark.parametrize("after", [Place("1-0", ""), Place("1-0", "e1")])
def test_what_was_deleted_behind_a_position_is_told_once_in_however_many_pages_it_is_read(after: Place) -> None:
    stream, gaps, given_ids, place = Stream(), [], [], after
    stream.add(100)
    stream.delete(89)
    while place.ordinal is None:
        new, numbers, place = follow(stream, place, 7)
        gaps += new
        given_ids += numbers
        if len(given_ids) == 21:
            stream.delete(39)  # within what was told already
        if len(given_ids) == 42:
            stream.delete(93)
    assert [(gap.after, gap.upto, gap.count) for gap in gaps] == [("1-0", "90-0", None), ("44-0", "96-0", None)]
    assert given_ids == [number for number in range(2, 101) if number not in (40, 90, 96)]


def test_behind_a_gap_nothing_is_told_twice() -> None:
    """Somebody who was told of a gap, and then begins anew from there, gets the same entries and no second gap."""
    stream = Stream()
    stream.add(10)
    before = Place("2-0", "e1", 2)
    stream.trim(5)
    step = go_on("t", before, stream.seen_from(before.id, 3))
    assert step.gap is not None
    assert step.gap.count == 3
    again = go_on("t", step.behind_gap(before), stream.seen_from(before.id, 3))
    assert (again.gap, again.entries) == (None, step.entries)
    assert [place.ordinal for _, place in step.placed()] == [6, 7, 8]


@pytest.mark.parametrize(("id", "before"), [("5-3", "5-2"), ("5-0", f"4-{2**64 - 1}"), ("0-1", "0-0"), ("0-0", "0-0")])
def test_the_id_before_another(id: str, before: str) -> None:
    assert predecessor(id) == before


@given(st.datetimes(timezones=st.timezones()))
def test_a_moment_begins_with_the_first_entry_that_is_not_before_it(moment: Any) -> None:
    start = parse(moment)
    assert start == moment
    id = id_before(moment)
    first = (order(id)[0] + 1) if id != FIRST_ID else 0
    elapsed = moment - datetime(1970, 1, 1, tzinfo=UTC)
    if elapsed > timedelta(0):
        assert timedelta(milliseconds=first - 1) < elapsed <= timedelta(milliseconds=first)
    else:
        assert first == 0
