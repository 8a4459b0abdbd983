"""Where a message was seen last, for whoever has to find out how it was lost."""

from collections.abc import Iterator

from tests.fault.history import History
from tests.fault.state import State


def last_seen(history: History, state: State, group: str, tag: str) -> str:
    return "; ".join([*_runs(history, group, tag), *_places(history, state, group, tag)])


def _runs(history: History, group: str, tag: str) -> Iterator[str]:
    runs = history.runs.get((group, tag), [])
    if not runs:
        yield "no handler of the group ever saw it"
        return
    start, finish = runs[-1]
    fate = "never finished" if finish is None else f"finished with {finish.what} {finish.error}".rstrip()
    yield f"{len(runs)} handlers began it, the last in process {start.pid} as attempt {start.attempt}, which {fate}"
    if start.pid in history.deaths:
        yield f"that process died {history.deaths[start.pid] - start.at:.2f} s later"
    for line in history.of_kind["hit"]:
        if line.pid == start.pid and line.at > start.at:
            yield f"{line.at - start.at:.2f} s later it did not get a reply ({line.name})"
    for line in history.events("Parked", "DeadLettered", "Skipped", "HandlerStuck"):
        if line.facts.get("entry_id") == start.entry and line.group == group:
            yield f"the engine said {line.name} of it"
    for line in history.events("Fenced", "LeaseLost"):
        if start.entry in line.facts.get("entry_ids", ()) and line.group == group:
            yield f"the engine said {line.name} of it, in process {line.pid}"


def _places(history: History, state: State, group: str, tag: str) -> Iterator[str]:
    entry = history.acks[tag][0].entry if tag in history.acks else ""
    found = [f"in the topic as {stored.id}" for stored in state.entries if stored.tag == tag]
    found += [f"not delivered yet to {stored.place}" for stored in state.unread if stored.tag == tag]
    found += [
        f"pending for {row.consumer} of {row.group}, delivered {row.deliveries} times"
        for row in state.pending
        if row.id == entry
    ]
    found += [f"parked for {stored.place}" for stored in state.parked if stored.tag == tag]
    found += [f"in the retry stream of {stored.place}" for stored in state.retrying if stored.tag == tag]
    found += [f"among the dead letters of {letter.group}" for letter in state.dead if letter.tag == tag]
    yield f"it was written as {entry or 'nobody knows what'}"
    yield "now it is " + (" and ".join(found) if found else "nowhere on the server")
