"""How the workers must have behaved, whatever was done to them. Each is a pure function over the evidence.

I4 nothing is repeated without need, I5 budgets and blame, I10 bounded, I11 it goes on, I12 no secrets.
"""

import itertools
from collections import Counter
from collections.abc import Iterator

from tests.fault.behaviour import ENDLESS, FAILING, INNOCENT, KILLING
from tests.fault.history import History, Run
from tests.fault.rules import Rules
from tests.fault.state import Dead, State

CLOCK_TOLERANCE = 0.02
"""Seconds. Due times are of the server's wall clock, in whole milliseconds; journals use a steady one."""

SETTLING = 0.5
"""Seconds within which a settle has surely been answered, on a server that nobody disturbs."""


def i4_nothing_is_repeated_without_need(history: History, state: State, rules: Rules) -> Iterator[str]:
    if rules.at_most_once:
        yield from _repeats(history)
        return
    told = {(line.pid, entry) for line in history.events("Fenced") for entry in line.facts["entry_ids"]}
    for (group, tag), runs in history.runs.items():
        for position, run in enumerate(runs[:-1]):
            if run.finish is not None and run.ended and not history.interrupted(runs, position):
                again = runs[position + 1].start
                yield (
                    f"group {group} handled {tag} ({run.start.do}, {run.start.entry}) to the end in process"
                    f" {run.start.pid}, which lived on, in {run.finish.at - run.start.at:.2f} s, and began it again in"
                    f" {again.pid}, {again.at - run.finish.at:.2f} s later"
                )
        yield from _overlaps(history, told, runs)


def _repeats(history: History) -> Iterator[str]:
    for (group, tag), runs in history.runs.items():
        if len(runs) > 1:
            yield f"group {group} began {tag} {len(runs)} times, and was to begin it at most once"


def _overlaps(history: History, told: set[tuple[int, str]], runs: list[Run]) -> Iterator[str]:
    """Who was robbed of a message, and finished it while the new owner was at it, must have been told so."""
    for run, following in itertools.pairwise(runs):
        first, second = run.start, following.start
        if not run.ended or run.finish is None or run.finish.at < second.at or first.pid == second.pid:
            continue
        settled = run.finish.at + SETTLING
        if following.finish is not None:
            stalls = history.stalls_of(first.pid)
            settled += sum(span.within(run.finish.at, following.finish.at) for span in stalls)
        still_at_it = following.finish is None or following.finish.at > settled
        excused = first.attempt > 1 or first.pid in history.deaths or (first.pid, first.entry) in told
        if still_at_it and not excused:
            yield f"{second.pid} had taken {first.tag} over from {first.pid}, whose settle went through all the same"


def i5_budgets_and_blame(history: History, state: State, rules: Rules) -> Iterator[str]:
    letters = [letter for letter in state.dead if not letter.lost]
    yield from _buried_twice(history, letters)
    buried = {(letter.group, letter.tag): letter for letter in letters}
    for group, tag in history.runs:
        if tag not in history.intents:
            continue
        do, letter = history.intents[tag].do, buried.get((group, tag))
        if do in INNOCENT and letter is not None:
            yield f"{tag} did nothing wrong ({do}), but group {group} buried it: {letter.reason}"
        if not rules.at_most_once:  # where what fails is gone
            yield from _budget(history, rules, group, tag, letter)
            yield from _blame(history, group, tag)
            yield from _waits(history, rules, group, tag)


def _buried_twice(history: History, letters: list[Dead]) -> Iterator[str]:
    """Once for each time the group was made: it begins where the old one was last seen, maybe before a death.

    What the old group had parked lives on, beside the same entry given out anew: both may die in the new one.
    """
    restored = [line for line in history.of_kind["healed"] if line.name == "group destroyed"]
    destroyed = [line.at for line in history.of_kind["fault"] if line.name == "group destroyed"]
    begun = {(group, run.start.entry): run.start.at for (group, _), runs in history.runs.items() for run in runs[:1]}
    count = Counter[tuple[str, str, int]]()
    for position, letter in enumerate(letters):
        life = sum(line.group == letter.group and position >= line.facts["letters"] for line in restored)
        count[letter.group, letter.entry, life] += 1
    for (group, entry, life), found in count.items():
        was_parked = life > 0 and begun.get((group, entry), float("inf")) < destroyed[life - 1]
        if found > 1 + was_parked:
            yield f"entry {entry} is {found} times among the dead letters of group {group}"


def _budget(history: History, rules: Rules, group: str, tag: str, letter: Dead | None) -> Iterator[str]:
    do, runs = history.intents[tag].do, history.runs[group, tag]
    counted = [run for position, run in enumerate(runs) if not history.interrupted(runs, position)]
    if len(counted) > rules.attempts and do not in ENDLESS:
        yield f"{tag} ran {len(counted)} times undisturbed in group {group}; the budget is {rules.attempts}"
    if do in KILLING | FAILING | ENDLESS and letter is None:
        yield f"{tag} never succeeds ({do}), but is not among the dead letters of group {group}"
    robbed = sum(history.robbed(runs, position) for position in range(len(runs)))
    if do in KILLING | ENDLESS and len(runs) - robbed > rules.attempts + 1:
        yield f"{tag} was begun {len(runs)} times by group {group}; {rules.attempts} + 1 is the limit"
    if letter is not None and do in FAILING and letter.attempts != rules.attempts:
        yield f"{tag} was given up after {letter.attempts} attempts, not after {rules.attempts}"


def _blame(history: History, group: str, tag: str) -> Iterator[str]:
    """An attempt's number counts what this very message did: raised, or died as a suspect."""
    raised = deaths = 0
    runs = history.runs[group, tag]
    for position, run in enumerate(runs):
        most = 1 + raised + max(0, deaths - 1)
        if run.start.attempt > most:
            yield f"{tag} is blamed for what others did: attempt {run.start.attempt}, at most {most}, in group {group}"
        raised += run.finish is not None and run.finish.what == "raised"
        deaths += history.deadly(run) or history.robbed(runs, position)


def _waits(history: History, rules: Rules, group: str, tag: str) -> Iterator[str]:
    runs = history.runs[group, tag]
    for position, (run, following) in enumerate(itertools.pairwise(runs)):
        if run.finish is None or run.finish.what != "raised" or history.interrupted(runs, position):
            continue
        waited = following.start.at - run.finish.at
        least = rules.delay_after(run.start.attempt)
        if waited < least - CLOCK_TOLERANCE:
            yield f"{tag} was tried again after {waited:.3f} s in group {group}; it was to wait {least:.3f} s"


def i10_bounded(history: History, state: State, rules: Rules) -> Iterator[str]:
    for line in history.of_kind["left"]:
        peak = line.facts.get("peak_rss", 0)
        if peak > rules.most_rss:
            yield f"process {line.pid} grew to {peak >> 20} MiB; {rules.most_rss >> 20} MiB is the limit"
    for name, text in rules.texts.items():
        if (count := text.count("\n")) > rules.most_log_lines:
            yield f"{name} printed {count} lines; {rules.most_log_lines} is the limit"
    connections = max((line.facts["clients"] for line in history.of_kind["seen"] if "clients" in line.facts), default=0)
    if connections > rules.most_connections:
        yield f"{connections} connections were open; {rules.most_connections} is the limit"


_PROGRESS = {"acked", "start", "end", "raised", "event", "ready", "left", "spawned"}


def i11_it_goes_on(history: History, state: State, rules: Rules) -> Iterator[str]:
    settled = [line.at for line in history.of_kind["seen"] if line.name == "settled"]
    if not settled:
        yield "it never came to an end"
        return
    healed = [line.at for kind in ("healed", "ended") for line in history.of_kind[kind] if line.at < settled[-1]]
    begin = max(healed, default=history.lines[0].at)
    moments = [begin, *(line.at for line in history.lines if line.what in _PROGRESS and begin < line.at < settled[-1])]
    limit, stalls = rules.longest_pause * slowness(history), history.every_stall()
    for earlier, later in itertools.pairwise([*moments, settled[-1]]):
        paused = later - earlier
        if paused > limit and paused > limit + sum(span.within(earlier, later) for span in stalls):
            yield f"nothing happened for {paused:.1f} s; {limit:.1f} s is the limit"


def slowness(history: History) -> float:
    """How busy the machine was with other things: seconds that a process took to start, but at least 1."""
    spawned = {line.pid: line.at for line in history.of_kind["spawned"]}
    awake = {line.pid: line.at for line in reversed(history.lines) if line.what in ("ready", "intent")}
    return max([1.0, *(awake[pid] - spawned[pid] for pid in awake.keys() & spawned.keys())])


def i12_no_secrets(history: History, state: State, rules: Rules) -> Iterator[str]:
    texts = dict(rules.texts) | {f"the dead letter of entry {letter.entry}": letter.reason for letter in state.dead}
    for line in history.lines:
        texts[f"what process {line.pid} learnt"] = texts.get(f"what process {line.pid} learnt", "") + line.error
    for line in history.of_kind["event"]:
        texts[f"the event {line.name}"] = texts.get(f"the event {line.name}", "") + str(line.facts)
    for name, text in texts.items():
        for canary in rules.canaries:
            if canary in text:
                yield f"{name} holds a secret: {canary}"
