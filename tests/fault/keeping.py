"""What must have become of every message, whatever was done to the run. Each is a pure function over the evidence.

I1 nothing is lost, I2 nothing is invented, I3 a message is one entry, I6 everything is settled, I9 loss is loud.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.fault.behaviour import MALFORMED
from tests.fault.history import History
from tests.fault.lanes import topics_of
from tests.fault.postmortem import last_seen
from tests.fault.rules import Rules
from tests.fault.state import Dead, State, order


def settled_tags(history: History, state: State, group: str) -> set[str]:
    """Handled, or among the group's dead letters."""
    handled = {tag for (of, tag), runs in history.runs.items() if of == group and any(run.ended for run in runs)}
    letters = [letter for letter in state.dead if letter.group == group]
    return handled | {tag_of(history, letter) for letter in letters}


def tag_of(history: History, letter: Dead) -> str:
    """By its place, where that is known: what cannot be read may look like another message."""
    return history.tag_of_entry.get(letter.entry, letter.tag)


def announced(history: History, rules: Rules, group: str, tag: str) -> bool:
    """An alarm names a range with this message in it, or could not know that it existed."""
    ack = history.acks[tag][0]
    for line in history.events("Lost"):
        if line.group != group or order(ack.entry) < order(line.facts["first"]):
            continue
        if order(ack.entry) <= order(line.facts["last"]):
            return True
        unseen = any(span.begin - rules.unobserved < ack.at <= span.end for span in history.faults)
        if line.facts["count"] is None and unseen:
            return True
    return False


def spent(history: History, group: str, tag: str) -> bool:
    """Settled on receipt, and gone for a reason that anybody can know: its process died, or it was told."""
    entry = history.acks[tag][0].entry
    if any(history.deadly(run) for run in history.runs.get((group, tag), ())):
        return True
    if any(line.facts["entry_id"] == entry for line in history.events("Failed") if line.group == group):
        return True
    return any(
        line.facts["scope"] == "drop" and entry in line.facts["error"]
        for line in history.events("Trouble")
        if line.group == group
    )


def i1_nothing_is_lost(history: History, state: State, rules: Rules) -> Iterator[str]:
    acked = history.with_verdict("acked")
    for group in state.groups:
        for tag in sorted(acked - settled_tags(history, state, group)):
            excused = (rules.loses and announced(history, rules, group, tag)) or (
                rules.at_most_once and spent(history, group, tag)
            )
            if not excused:
                yield f"{tag} was acknowledged, but group {group} lost it; {last_seen(history, state, group, tag)}"
    there = {one.tag for one in (*state.entries, *state.dead)} | {tag for _, tag in history.runs}
    for tag in sorted(history.with_verdict("failed") & there):
        yield f"{tag} was refused, and is there all the same"


def i2_nothing_is_invented(history: History, state: State, rules: Rules) -> Iterator[str]:
    for line in history.of_kind["start"]:
        intent = history.intents.get(line.tag)
        if intent is None:
            yield f"{line.tag or line.entry} was handled, but nobody meant to publish it"
        elif intent.sha != line.sha:
            yield f"{line.tag} was handled with another payload than it was sent with"
        elif line.tag in history.acks and history.acks[line.tag][0].id not in ("", line.id):
            yield f"{line.tag} was handled under the id {line.id}, but published as {history.acks[line.tag][0].id}"
    for letter in state.dead:
        tag = tag_of(history, letter)
        intent = history.intents.get(tag)
        if letter.lost:
            continue
        if intent is None:
            yield f"the dead letter of entry {letter.entry} holds a message nobody meant to publish"
        elif intent.sha != (letter.raw if intent.do == MALFORMED else letter.sha):
            yield f"the dead letter of {tag} does not hold the bytes that were sent"


def i3_one_entry_per_message(history: History, state: State, rules: Rules) -> Iterator[str]:
    places: dict[str, set[str]] = defaultdict(set)
    for entry in state.entries:
        places[entry.tag].add(entry.id)
    for line in (*history.of_kind["acked"], *history.of_kind["start"]):
        if line.entry:  # of a job that is scheduled, or was done before its second publish, nobody can tell it
            places[line.tag].add(line.entry)
    places.pop("", None)
    for tag, entries in sorted(places.items()):
        if len(entries) > 1 and not rules.copies:
            yield f"{tag} is in the topic as {', '.join(sorted(entries))}"


def i6_everything_is_settled(history: History, state: State, rules: Rules) -> Iterator[str]:
    for row in state.pending:
        yield f"entry {row.id} of {row.stream} is still pending for {row.group}, held by {row.consumer}"
    for what, rows in (("was never delivered to", state.unread), ("still waits to be retried by", state.retrying),
                       ("is still parked for", state.parked)):  # fmt: skip
        for stored in rows:
            yield f"{stored.tag or stored.id} {what} {stored.place}"
    for mark in state.marks:
        yield f"the start-mark {mark} is of no entry that is pending"
    if state.later:
        yield f"{state.later} messages that were to appear later never did"
    for name in state.immortal:
        yield f"the dedupe key {name} never expires"


def i9_loss_is_loud(history: History, state: State, rules: Rules) -> Iterator[str]:
    if not rules.loses:
        for line in history.events("Lost"):
            yield f"a false alarm: {line.facts} of {line.topic}, and nothing was destroyed"
        return
    for group in state.groups:
        missing = history.with_verdict("acked") - settled_tags(history, state, group)
        reported = any(letter.lost and letter.group == group for letter in state.dead)
        alarms = [line for line in history.events("Lost") if line.group == group]
        if missing and not alarms and not reported:
            yield f"{len(missing)} messages of {state.topic} were destroyed, and group {group} never said so"
        if any(line.topic not in (state.topic, *topics_of(state.topic, lanes=True)) for line in alarms):
            yield f"an alarm of group {group} names another topic than {state.topic}"
    twice = Counter((letter.group, letter.entry) for letter in state.dead if letter.lost)
    for (group, entry), count in twice.items():
        if count > 1:
            yield f"entry {entry} is reported as lost {count} times to {group}"
