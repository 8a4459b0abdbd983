"""What must hold of every topic, whatever its workers do or did. Each rule says what does not hold.

Nothing is changed. Of entries, retries, parked deliveries and dead letters some are looked at, the oldest first.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta

from msgspec import Struct

from penstock.backend.entry import FetchedEntry, Letter, Malformed
from penstock.backend.evidence import Books, Key, Parcel, ServerFacts
from penstock.backend.facts import GroupFacts, TopicFacts, position
from penstock.diagnosis.case import GroupCase
from penstock.diagnosis.finding import Finding, amount, client_command, command
from penstock.diagnosis.group_rules import RUN, ghosts
from penstock.diagnosis.topic_rules import unnamed
from penstock.message.times import span_text
from penstock.options import DeadLetterBounds
from penstock.overview import age_of

_NAMED = 5
_MENDED = 100
"""As many as one command is to take."""
_PASSED_BY = (
    "with --yes, from that moment on it is given everything again: take one before it was moved, for what was added"
    " since was passed by, and is left out for good with --to latest"
)
_DEAD_SLACK = 200
"""Dead letters beyond the bound that may stay a while: whole nodes of the stream are dropped, and now and then."""


class Ledger(Struct, frozen=True, kw_only=True):
    """A topic laid open."""

    facts: TopicFacts
    groups: tuple[GroupCase, ...]
    books: Books
    unnamed: tuple[GroupFacts, ...] = ()
    """Groups that cannot be looked at by name."""

    entries: tuple[FetchedEntry, ...]
    retries: dict[str, tuple[FetchedEntry, ...]]
    """By group."""

    parked: dict[str, tuple[Parcel, ...]]
    later: tuple[Parcel, ...]
    letters: tuple[Letter, ...]
    """The oldest first."""

    bounds: DeadLetterBounds = DeadLetterBounds()


Rule = Callable[[Ledger], Iterator[Finding]]


def registry(ledger: Ledger) -> Iterator[Finding]:
    if not ledger.books.registered:
        yield Finding.of(
            ledger.facts.topic,
            "registry",
            "the topic is not registered: it is in no list, and retention does not know of it",
            remedy=command("topic", "adopt", ledger.facts.topic),
        )


def types(topic: str, keys: Iterable[Key], server: ServerFacts) -> Iterator[Finding]:
    """Before anything else: whoever reads a key of the wrong type fails."""
    for key in keys:
        if not key.is_right:
            rename = client_command(server, "RENAMENX", key.name, "NEWNAME")
            yield Finding(
                rule="types",
                subject=topic,
                what=f"key {key.name} is a {key.found} and should be a {key.expected}: whoever needs it fails",
                remedy=rename,
                besides="once you have found out who else writes there",
            )


def epochs(ledger: Ledger) -> Iterator[Finding]:
    if len(ledger.books.epochs) > 1:
        yield Finding.of(
            ledger.facts.topic,
            "epochs",
            "the stream has several epochs: losses cannot be told for certain",
            ", ".join(ledger.books.epochs),
            remedy="somebody wrote to Penstock's own group: let only Penstock do that",
        )


def notes(ledger: Ledger) -> Iterator[Finding]:
    """What is noted about a group can be read, and is about a group that is there."""
    names = {group.facts.name for group in ledger.groups} | {group.name for group in ledger.unnamed}
    for name, readable in ledger.books.noted.items():
        if not readable:
            what = f"the note on group {name!r} cannot be read: after a loss it would begin at the first entry"
            yield Finding.of(ledger.facts.topic, "notes", what, remedy="a running worker of that group writes it anew")
    for name in sorted((set(ledger.books.noted) | set(ledger.parked)) - names):
        left = len(ledger.parked.get(name, ())) + len(ledger.retries.get(name, ()))
        if left:
            yield Finding.of(
                ledger.facts.topic,
                "orphans",
                f"group {name!r} is gone, and {amount(left, 'delivery', 'deliveries')} at least of it wait for a retry",
                remedy=RUN,
                besides=f"with a worker of group {name}, which makes it again and goes on with them",
            )
    for name in sorted(ledger.books.paused - names):
        what = f"group {name!r} is paused and does not exist: made again, it would read nothing"
        yield Finding.of(
            ledger.facts.topic, "notes", what, remedy=command("group", "resume", ledger.facts.topic, name), level="note"
        )


def positions(ledger: Ledger) -> Iterator[Finding]:
    """Nobody stands behind the last entry that was ever added."""
    topic, last = ledger.facts.topic, position(ledger.facts.last_id)
    for group in ledger.groups:
        if position(group.facts.last_delivered) > last:
            remedy, besides = command("group", "reset", topic, group.facts.name, "--to", "MOMENT"), _PASSED_BY
            if group.turn is not None:  # its place is its own
                remedy = command("group", "rm", topic, group.facts.name)
                besides = "that needs --yes, and its reader to be stopped, which then begins anew"
            yield _ahead(ledger, f"group {group.facts.name!r}", group.facts.last_delivered, remedy, besides)
    for name in ledger.facts.cursors:
        id = ledger.facts.done_upto(name)  # one of an earlier stream begins anew by itself
        reset = ("cursor", "reset", topic, name, "--to")
        try:
            is_ahead = position(id) > last
        except ValueError:
            what = f"cursor {name!r} stands at {id!r}, which is no entry id: nothing is trimmed"
            anew = "that needs --yes; its reader then begins anew: to leave out what it had, give a moment instead"
            yield Finding.of(topic, "positions", what, remedy=command(*reset, "earliest"), besides=anew)
            continue
        if is_ahead:
            yield _ahead(ledger, f"cursor {name!r}", id, command(*reset, "MOMENT"), _PASSED_BY)


def _ahead(ledger: Ledger, who: str, id: str, remedy: str, besides: str) -> Finding:
    return Finding.of(
        ledger.facts.topic,
        "positions",
        f"{who} stands behind the end of the topic, and passes by what comes until then: the server fell back, or"
        " somebody moved it",
        f"it is at {id}; the last entry ever added is {ledger.facts.last_id}",
        remedy=remedy,
        besides=besides,
    )


def entries(ledger: Ledger) -> Iterator[Finding]:
    broken = [entry for entry in ledger.entries if isinstance(entry, Malformed)]
    if broken:
        yield Finding.of(
            ledger.facts.topic,
            "entries",
            f"{amount(len(broken), 'entry is no message', 'entries are no messages')},"
            f" of {len(ledger.entries):,} looked at",
            *(f"{one.id}: {one.error.reason}" for one in broken[:_NAMED]),
            remedy="workers put them to the dead letters; if all are so, the topic has another wire format: --dialect",
        )


def retries(ledger: Ledger) -> Iterator[Finding]:
    """Every entry of a retry stream, and every parked delivery, knows where it came from."""
    for group, found in ledger.retries.items():
        broken = [entry for entry in found if isinstance(entry, Malformed) and not entry.lost]
        if broken:
            yield Finding.of(
                ledger.facts.topic, "retries",
                f"{amount(len(broken), 'retry is', 'retries are')} damaged, of group {group!r}",
                *(f"{one.id}: {one.error.reason}" for one in broken[:_NAMED]),
                remedy="workers of the group put them to the dead letters",
            )  # fmt: skip
    for name, waits in (*ledger.parked.items(), (None, ledger.later)):
        whose = "messages for later" if name is None else f"parked deliveries of group {name!r}"
        reasons = [one.problem for one in waits if one.problem]
        reasons += ["the time it is due at is none" for one in waits if one.due is None]
        if reasons:
            yield Finding.of(
                ledger.facts.topic, "parked",
                f"{len(reasons):,} of the {whose} cannot be opened", *sorted(set(reasons)),
                remedy="they become dead letters when they are due",
            )  # fmt: skip


def dead_letters(ledger: Ledger) -> Iterator[Finding]:
    """Dead letters can be opened, and are as few and as young as they are to be."""
    topic, bounds = ledger.facts.topic, ledger.bounds
    broken = [letter for letter in ledger.letters if letter.broken]
    if broken:
        seen = (f"{one.id}: {one.broken}" for one in broken[:_NAMED])
        what = f"{amount(len(broken), 'dead letter')} cannot be opened"
        yield Finding.of(
            ledger.facts.topic, "dead", what, *seen,
            remedy=command("dead", "purge", topic, *(one.id for one in broken[:_MENDED])),
            besides="that says what it would destroy, and with --yes does it; what is left of the first:"
            f" {command('dead', 'show', topic, broken[0].id)}",
        )  # fmt: skip
    age = age_of(ledger.letters[0].id, ledger.facts.now) if ledger.letters else None
    is_old = age is not None and age > bounds.keep + timedelta(days=1)
    if ledger.facts.dead > bounds.max_entries + _DEAD_SLACK or is_old:
        # Which of too many are to go before they are old, is for people to say.
        purge = command("dead", "purge", topic, "--until", span_text(bounds.keep) if is_old else "MOMENT")
        yield Finding.of(
            ledger.facts.topic,
            "dead",
            "there are more dead letters, or older ones, than are to be kept: no worker bounds them",
            f"{ledger.facts.dead:,} of at most {bounds.max_entries:,}",
            f"the oldest is {(age or timedelta(0)).days} days old, of at most {bounds.keep.days}",
            remedy=RUN,
            besides="with a worker of any group of the topic; or throw away what was last tried before then, which"
            f" needs --yes: {purge}",
        )


def pending(ledger: Ledger) -> Iterator[Finding]:
    for group in ledger.groups:
        yield from ghosts(group)


def strange(ledger: Ledger) -> Iterator[Finding]:
    yield from unnamed(ledger.facts.topic, ledger.unnamed)


RULES: Sequence[Rule] = (
    registry, epochs, notes, strange, positions, entries, retries, dead_letters, pending,
)  # fmt: skip
