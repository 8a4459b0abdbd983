"""The checker finds what it is there to find: one planted story per way to break each invariant."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fault.checker import INVARIANTS, Verdict, check
from tests.fault.journal import Journal, Journals, Line
from tests.fault.rules import Rules
from tests.fault.state import Dead, Pending, State, Stored

RULES = Rules(attempts=3, initial=0.1, maximum=1.0, longest_pause=10.0, canaries=("password",))
WORKER, OTHER, PRODUCER = 10, 11, 20


class Story:
    """A run in which everything goes well: m1 is handled, m2 fails three times and is buried, m3 is malformed."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.rules = RULES
        self.clock = 0.0
        for tag, do, entry in (("m1", "ok", "1-0"), ("m2", "raise", "2-0"), ("m3", "malformed", "3-0")):
            self.say("intent", tag, pid=PRODUCER, sha=f"sha-{tag}", do=do)
            self.say("acked", tag, pid=PRODUCER, entry=entry, id=f"id-{tag}")
        self.run("m1", "end", entry="1-0")
        for attempt in (1, 2, 3):
            self.run("m2", "raised", entry="2-0", attempt=attempt)
        self.say("seen", name="settled")
        self.state = State(
            topic="t",
            groups=("g",),
            entries=(Stored("t", "1-0", "m1"), Stored("t", "2-0", "m2"), Stored("t", "3-0", "")),
            dead=(
                Dead("g", "2-0", "m2", "sha-m2", "raw", 3, "Boom"),
                Dead("g", "3-0", "", "", "sha-m3", 1, "no payload"),
            ),
        )

    def say(self, what: str, tag: str = "", **facts: Any) -> None:
        self.clock += facts.pop("after", 1.0)
        self.lines.append(Line(what=what, at=self.clock, pid=facts.pop("pid", WORKER), tag=tag, **facts))

    def run(self, tag: str, finish: str | None, *, attempt: int = 1, **facts: Any) -> None:
        common = {"group": "g", "entry": "1-0", "attempt": attempt, **facts}
        self.say("start", tag, **{"sha": f"sha-{tag}", "id": f"id-{tag}", **common})
        if finish is not None:
            self.say(finish, tag, **{key: common[key] for key in common.keys() - {"sha", "after"}})

    def event(self, name: str, **facts: Any) -> None:
        self.say("event", name=name, group="g", topic=facts.pop("topic", "t"), facts=facts)

    def forget(self, what: str, tag: str) -> None:
        self.lines = [line for line in self.lines if (line.what, line.tag) != (what, tag)]

    def alter(self, **changes: Any) -> None:
        self.state = msgspec.structs.replace(self.state, **changes)

    def rule(self, **changes: Any) -> None:
        self.rules = msgspec.structs.replace(self.rules, **changes)

    def verdict(self) -> Verdict:
        return check(self.lines, self.state, self.rules)


def test_a_run_in_which_all_went_well_is_clean() -> None:
    verdict = Story().verdict()
    assert str(verdict) == "clean"
    assert (verdict.intended, verdict.acked, verdict.handled, verdict.dead, verdict.repeated) == (3, 3, 1, 2, 0)


def lost(story: Story) -> None:
    story.forget("start", "m1")
    story.forget("end", "m1")


def raised_only(story: Story) -> None:
    story.forget("end", "m1")


def buried_for_another_group_only(story: Story) -> None:
    first, second = story.state.dead
    story.alter(dead=(msgspec.structs.replace(first, group="another"), second))


def refused_but_there(story: Story) -> None:
    story.say("intent", "m4", sha="s", do="ok")
    story.say("failed", "m4", error="OOM")
    story.alter(entries=(*story.state.entries, Stored("t", "4-0", "m4")))


def a_phantom(story: Story) -> None:
    story.run("m9", "end", entry="9-0")


def another_payload(story: Story) -> None:
    story.run("m1", "end", sha="changed")


def another_id(story: Story) -> None:
    story.run("m1", "end", id="changed")


def a_buried_phantom(story: Story) -> None:
    story.alter(dead=(*story.state.dead, Dead("g", "9-0", "m9", "s", "r", 3, "Boom")))


def buried_bytes_differ(story: Story) -> None:
    first, second = story.state.dead
    story.alter(dead=(msgspec.structs.replace(first, sha="changed"), second))


def malformed_bytes_differ(story: Story) -> None:
    first, second = story.state.dead
    story.alter(dead=(first, msgspec.structs.replace(second, raw="changed")))


def stored_twice(story: Story) -> None:
    story.alter(entries=(*story.state.entries, Stored("t", "5-0", "m1")))


def acknowledged_as_two_entries(story: Story) -> None:
    story.say("acked", "m1", entry="5-0", id="id-m1")


def handled_twice_for_no_reason(story: Story) -> None:
    story.run("m1", "end", pid=OTHER)


def handled_twice_for_a_lost_reply(story: Story) -> None:
    story.say("hit", name="dropped")
    story.run("m1", "end", pid=OTHER)


def handled_twice_for_a_silence_of_others(story: Story) -> None:
    story.say("silent", pid=OTHER, name="wire 1")
    story.run("m1", "end", pid=OTHER)


def begun_twice_though_at_most_once(story: Story) -> None:
    story.rule(at_most_once=True)
    story.run("m1", None, pid=OTHER)
    story.say("died", pid=OTHER)


def gone_without_a_word_though_at_most_once(story: Story) -> None:
    story.rule(at_most_once=True)
    raised_only(story)


def not_told_that_it_was_robbed(story: Story) -> None:
    story.say("intent", "m4", sha="sha-m4", do="slow", pid=PRODUCER)
    story.say("acked", "m4", entry="4-0", id="id-m4", pid=PRODUCER)
    common = {"group": "g", "entry": "4-0", "attempt": 1, "sha": "sha-m4", "id": "id-m4"}
    story.say("start", "m4", **common)
    story.say("frozen")
    story.say("start", "m4", pid=OTHER, **common)
    story.say("thawed")
    story.say("end", "m4", **common)
    story.say("end", "m4", pid=OTHER, **common)


def beyond_its_budget(story: Story) -> None:
    story.run("m2", "raised", entry="2-0", attempt=4)


def buried_twice(story: Story) -> None:
    story.alter(dead=(*story.state.dead, story.state.dead[0]))


def restored(story: Story, group: str, letters: int, at: float = 0.5) -> None:
    """Before the story's first run, unless told."""
    story.lines.append(Line(what="fault", at=at, pid=PRODUCER, name="group destroyed"))
    facts = {"letters": letters}
    story.lines.append(Line(what="healed", at=at + 0.1, pid=PRODUCER, name="group destroyed", group=group, facts=facts))


def buried_twice_since_its_group_was_restored(story: Story) -> None:
    restored(story, "g", letters=0)
    buried_twice(story)


def buried_three_times_since_its_group_was_restored(story: Story) -> None:
    restored(story, "g", letters=0, at=story.clock)
    story.alter(dead=(*story.state.dead, story.state.dead[0], story.state.dead[0]))


def buried_twice_before_its_group_was_restored(story: Story) -> None:
    restored(story, "g", letters=3, at=story.clock)
    buried_twice(story)


def buried_twice_where_another_group_was_restored(story: Story) -> None:
    restored(story, "h", letters=2, at=story.clock)
    buried_twice(story)


@pytest.mark.parametrize("letters", [2, 0], ids=["died before that", "was parked then"])
def test_what_was_begun_before_its_group_was_restored_may_die_again(letters: int) -> None:
    story = Story()
    restored(story, "g", letters, at=story.clock)
    buried_twice(story)
    assert not [violation for violation in story.verdict().violations if violation.invariant == "I5"]


def begun_without_end_too_often(story: Story) -> None:
    endless(story, times=5)


def endless(story: Story, times: int) -> None:
    story.say("intent", "m4", sha="sha-m4", do="never", pid=PRODUCER)
    story.say("acked", "m4", entry="4-0", id="id-m4", pid=PRODUCER)
    for pid in range(100, 100 + times):
        story.run("m4", None, entry="4-0", pid=pid)
    story.alter(dead=(*story.state.dead, Dead("g", "4-0", "m4", "sha-m4", "r", 3, "begun too often")))


def an_innocent_is_buried(story: Story) -> None:
    story.alter(dead=(*story.state.dead, Dead("g", "1-0", "m1", "sha-m1", "r", 3, "crashed")))


def poison_is_not_buried(story: Story) -> None:
    story.alter(dead=story.state.dead[1:])
    story.run("m2", "end", entry="2-0", attempt=3)


def given_up_too_early(story: Story) -> None:
    first, second = story.state.dead
    story.alter(dead=(msgspec.structs.replace(first, attempts=2), second))


def blamed_for_others(story: Story) -> None:
    story.say("intent", "m4", sha="sha-m4", do="ok", pid=PRODUCER)
    story.say("acked", "m4", entry="4-0", id="id-m4", pid=PRODUCER)
    story.run("m4", "end", entry="4-0", attempt=2)


def killed_too_many(story: Story) -> None:
    story.say("intent", "m4", sha="sha-m4", do="os_exit", pid=PRODUCER)
    story.say("acked", "m4", entry="4-0", id="id-m4", pid=PRODUCER)
    for pid in range(100, 105):
        story.run("m4", None, entry="4-0", pid=pid)
        story.say("died", pid=pid)
    story.alter(dead=(*story.state.dead, Dead("g", "4-0", "m4", "sha-m4", "r", 3, "crashed")))


def tried_again_too_soon(story: Story) -> None:
    story.say("intent", "m4", sha="sha-m4", do="flaky", pid=PRODUCER)
    story.say("acked", "m4", entry="4-0", id="id-m4", pid=PRODUCER)
    story.run("m4", "raised", entry="4-0")
    story.run("m4", "end", entry="4-0", attempt=2, after=0.05)


def still_pending(story: Story) -> None:
    story.alter(pending=(Pending("t", "g", "1-0", "c"),))


def not_delivered(story: Story) -> None:
    story.alter(unread=(Stored("g", "1-0", "m1"),))


def still_parked(story: Story) -> None:
    story.alter(parked=(Stored("g", "parked", "m1"),))


def still_to_be_retried(story: Story) -> None:
    story.alter(retrying=(Stored("g", "1-0", "m1"),))


def a_mark_for_ever(story: Story) -> None:
    story.alter(marks=("topic/1-0 of g",))


def never_due(story: Story) -> None:
    story.alter(later=1)


def a_dedupe_key_for_ever(story: Story) -> None:
    story.alter(immortal=("once/m1",))


def a_false_alarm(story: Story) -> None:
    story.event("Lost", first="1-0", last="3-0", count=3, reason="trimmed")


def silent_loss(story: Story) -> None:
    story.rule(loses=True)
    lost(story)


def an_alarm_for_another_topic(story: Story) -> None:
    story.rule(loses=True)
    story.event("Lost", topic="other", first="1-0", last="3-0", count=3, reason="trimmed")


def reported_twice(story: Story) -> None:
    story.rule(loses=True)
    gone = Dead("g", "1-0", "", "", "", 1, "trimmed", lost=True)
    story.alter(dead=(*story.state.dead, gone, gone))


def too_large(story: Story) -> None:
    story.say("left", facts={"peak_rss": 1 << 40})


def too_talkative(story: Story) -> None:
    story.rule(texts={"worker": "x\n" * 1000})


def too_many_connections(story: Story) -> None:
    story.say("seen", name="server", facts={"clients": 1000})


def no_end(story: Story) -> None:
    story.lines = [line for line in story.lines if line.what != "seen"]


def a_standstill(story: Story) -> None:
    story.say("seen", name="settled", after=11.0)


def a_secret_in_a_log(story: Story) -> None:
    story.rule(texts={"worker": "cannot connect to redis://:password@host\n"})


def a_secret_in_an_error(story: Story) -> None:
    story.say("failed", "m1", error="cannot connect to redis://:password@host")


def a_secret_in_a_dead_letter(story: Story) -> None:
    first, second = story.state.dead
    story.alter(dead=(msgspec.structs.replace(first, reason="password"), second))


PLANTED: list[tuple[str, Callable[[Story], None]]] = [
    *[("I1", plant) for plant in (lost, raised_only, buried_for_another_group_only, refused_but_there)],
    *[("I2", plant) for plant in (a_phantom, another_payload, another_id, a_buried_phantom)],
    *[("I2", plant) for plant in (buried_bytes_differ, malformed_bytes_differ)],
    *[("I3", plant) for plant in (stored_twice, acknowledged_as_two_entries)],
    *[("I4", plant) for plant in (handled_twice_for_no_reason, not_told_that_it_was_robbed)],
    *[("I4", plant) for plant in (handled_twice_for_a_lost_reply, handled_twice_for_a_silence_of_others)],
    ("I4", begun_twice_though_at_most_once),
    ("I1", gone_without_a_word_though_at_most_once),
    *[("I5", plant) for plant in (beyond_its_budget, an_innocent_is_buried, poison_is_not_buried, given_up_too_early)],
    *[("I5", plant) for plant in (blamed_for_others, killed_too_many, tried_again_too_soon)],
    *[("I5", plant) for plant in (buried_twice, begun_without_end_too_often)],
    *[
        ("I5", plant)
        for plant in (buried_twice_since_its_group_was_restored, buried_twice_before_its_group_was_restored)
    ],
    *[("I5", plant) for plant in (buried_three_times_since_its_group_was_restored,)],
    *[("I5", plant) for plant in (buried_twice_where_another_group_was_restored,)],
    *[("I6", plant) for plant in (still_pending, not_delivered, still_parked, still_to_be_retried)],
    *[("I6", plant) for plant in (a_dedupe_key_for_ever, a_mark_for_ever, never_due)],
    *[("I9", plant) for plant in (a_false_alarm, silent_loss, an_alarm_for_another_topic, reported_twice)],
    *[("I10", plant) for plant in (too_large, too_talkative, too_many_connections)],
    *[("I11", plant) for plant in (no_end, a_standstill)],
    *[("I12", plant) for plant in (a_secret_in_a_log, a_secret_in_an_error, a_secret_in_a_dead_letter)],
]


@pytest.mark.parametrize(("invariant", "plant"), PLANTED, ids=lambda value: getattr(value, "__name__", value))
def test_a_planted_violation_is_found(invariant: str, plant: Callable[[Story], None]) -> None:
    story = Story()
    plant(story)
    assert invariant in {violation.invariant for violation in story.verdict().violations}


def test_every_invariant_has_a_planted_violation() -> None:
    assert {invariant for invariant, _ in PLANTED} == set(INVARIANTS)


def test_a_lost_message_is_followed_to_where_it_was_last() -> None:
    story = Story()
    raised_only(story)
    story.say("died", pid=WORKER)
    story.alter(pending=(Pending("t", "g", "1-0", "c7", 2),))
    said = str(story.verdict())
    assert "process 10 as attempt 1, which never finished; that process died" in said
    assert "in the topic as 1-0 and pending for c7 of g, delivered 2 times" in said


def test_who_was_robbed_and_was_told_so_did_no_harm() -> None:
    story = Story()
    not_told_that_it_was_robbed(story)
    story.event("Fenced", entry_ids=["4-0"])
    assert str(story.verdict()) == "clean"


@pytest.mark.parametrize("excuse", ["died", "frozen", "silent", "fault"])
def test_what_a_disturbed_process_did_may_be_done_again(excuse: str) -> None:
    story = Story()
    story.say("intent", "m4", sha="sha-m4", do="ok", pid=PRODUCER)
    story.say("acked", "m4", entry="4-0", id="id-m4", pid=PRODUCER)
    story.run("m4", "end", entry="4-0")
    story.say(excuse, name="server killed")
    story.run("m4", "end", entry="4-0", pid=OTHER)
    verdict = story.verdict()
    assert str(verdict) == "clean"
    assert verdict.repeated == 1


SCENE = 1
"""The process of the row itself: what it could not do, nobody could, or the server did not answer."""


@pytest.mark.parametrize(("who", "is_excused"), [(WORKER, True), (OTHER, True), (SCENE, True), (PRODUCER, False)])
def test_what_a_process_without_a_turn_did_may_be_done_again(who: int, is_excused: bool) -> None:
    """By who was late, or by who had it first and was late to begin it; whoever else was late excuses nothing."""
    story = Story()
    for pid in (WORKER, OTHER, PRODUCER):
        story.lines.append(Line(what="spawned", at=0.0, pid=pid))
    story.say("intent", "m4", sha="sha-m4", do="ok", pid=PRODUCER)
    story.say("acked", "m4", entry="4-0", id="id-m4", pid=PRODUCER)
    story.run("m4", "end", entry="4-0")
    story.say("stalled", pid=who, facts={"since": story.clock})
    story.run("m4", "end", entry="4-0", pid=OTHER)
    assert ("I4" in str(story.verdict())) is not is_excused


def test_a_settle_that_had_no_turn_is_given_as_much_more_time() -> None:
    story = Story()
    not_told_that_it_was_robbed(story)
    *before, end = story.lines
    stalled = Line(what="stalled", at=end.at - 0.1, pid=WORKER, facts={"since": end.at - 0.4})
    story.lines = [Line(what="spawned", at=0.0, pid=WORKER), *before, stalled, end]
    assert "I4" in str(story.verdict()), "it had time enough all the same"
    story.lines[-2] = msgspec.structs.replace(stalled, facts={"since": end.at - 0.9})
    assert str(story.verdict()) == "clean"


def test_a_machine_that_stood_still_is_given_as_much_more_time_to_go_on() -> None:
    story = Story()
    a_standstill(story)
    assert "I11" in str(story.verdict())
    since, until = story.lines[-2].at, story.lines[-1].at - 0.1
    story.lines.insert(-1, Line(what="stalled", at=until, pid=SCENE, facts={"since": since}))
    assert str(story.verdict()) == "clean"


def test_what_never_ends_may_be_begun_once_more_than_its_budget() -> None:
    story = Story()
    endless(story, times=4)
    assert str(story.verdict()) == "clean"


@pytest.mark.parametrize("how", ["died", "dropped", "failed"])
def test_at_most_once_what_died_with_its_process_or_was_told_is_no_loss(how: str) -> None:
    story = Story()
    gone_without_a_word_though_at_most_once(story)
    story.lines = [line for line in story.lines if line.tag != "m2" or line.attempt <= 1]
    story.say("seen", name="settled")
    if how == "died":
        story.say("died")
    elif how == "dropped":
        story.event("Trouble", scope="drop", error="DeliveryError: entry 1-0 of topic 't' is gone")
    else:
        story.event("Failed", entry_id="1-0", attempt=1)
    assert str(story.verdict()) == "clean"


def test_a_loss_that_was_announced_is_forgiven_where_the_environment_caused_it() -> None:
    story = Story()
    lost(story)
    story.rule(loses=True)
    story.event("Lost", first="1-0", last="1-0", count=1, reason="trimmed")
    assert str(story.verdict()) == "clean"
    story.lines.pop()
    story.event("Lost", first="2-0", last="3-0", count=1, reason="trimmed")
    assert "I1" in str(story.verdict())


def test_a_busy_machine_is_given_more_time_to_go_on() -> None:
    story = Story()
    story.say("spawned", pid=OTHER)
    story.say("ready", pid=OTHER, after=2.0)
    a_standstill(story)
    assert str(story.verdict()) == "clean"
    story.say("seen", name="settled", after=30.0)
    assert "I11" in str(story.verdict())


def test_an_unknown_message_may_be_there_or_not() -> None:
    story = Story()
    for tag in ("m4", "m5"):
        story.say("intent", tag, sha=f"sha-{tag}", do="ok", pid=PRODUCER)
        story.say("unknown", tag, error="PublishUnknownError", pid=PRODUCER)
    story.run("m4", "end", entry="4-0")
    verdict = story.verdict()
    assert (str(verdict), verdict.unknown) == ("clean", 2)


def test_journals_are_read_as_they_grow_and_survive_a_torn_line(tmp_path: Path) -> None:
    journals = Journals(tmp_path)
    first, second = Journal(tmp_path, "worker"), Journal(tmp_path, "producer")
    first.write("start", tag="a")
    second.write("intent", tag="b", facts={"x": 1})
    assert [line.tag for line in journals.read()] == ["a", "b"]
    path = next(tmp_path.glob("journal-worker-*"))
    with path.open("ab") as file:
        file.write(b'{"what":"end","at":1.0')
    assert journals.read() == []
    with path.open("ab") as file:
        file.write(b',"pid":1}\n')
    assert [line.what for line in journals.read()] == ["end"]
    assert len(journals.all()) == 3
