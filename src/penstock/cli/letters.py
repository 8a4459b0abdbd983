"""Dead letters, as the command line chooses and shows them."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter

from penstock.cli.dialects import DialectName
from penstock.cli.given import id_given
from penstock.cli.looking import topic_there
from penstock.cli.moments import Moment
from penstock.cli.queues import queue_with_lane
from penstock.cli.usage import NotThereError, UsageError
from penstock.errors import MalformedError

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.delivery.letters import DeadLetters, Letter
    from penstock.events import Listener

COLUMNS = ("id", "group", "attempts", "last", "reason")


@dataclass(frozen=True, kw_only=True)
class Which:
    """Which dead letters are meant."""

    group: str | None = None
    """Only those that this group gave up."""

    reason: str | None = None
    """Only those whose reason has this text in it."""

    error: str | None = None
    """Only those whose handler raised this class, with or without its module."""

    since: Moment | None = None
    """Only those that were last tried then or later."""

    until: Moment | None = None
    """Only those that were last tried before."""

    @property
    def is_any(self) -> bool:
        return not any(astuple(self))

    def has(self, letter: "Letter") -> bool:
        return (
            self.group in (None, letter.group)
            and (self.reason is None or self.reason in letter.reason)
            and self.error in (None, letter.error, letter.error.rpartition(".")[2])
            and (self.since is None or letter.last >= self.since)
            and (self.until is None or letter.last < self.until)
        )


@dataclass
class Meant:
    """Dead letters that somebody means."""

    groups: dict[str, str] = field(default_factory=dict)
    """Which group gave each up, by letter id."""

    unfit: dict[str, str] = field(default_factory=dict)
    """Why some cannot be replayed, by letter id."""

    def add(self, letter: "Letter") -> None:
        self.groups[letter.letter_id] = letter.group
        if (why := letter.unfit()) is not None:
            self.unfit[letter.letter_id] = why

    @property
    def replayable(self) -> dict[str, str]:
        return {id: group for id, group in self.groups.items() if id not in self.unfit}


Chosen: TypeAlias = Annotated[Which, Parameter(name="*")]
ALL = Which()


def letters_of(
    app: "Penstock", topic: str, dialect: DialectName = "native", listener: "Listener | None" = None
) -> "DeadLetters":
    """Of all groups of a topic; `listener` is told what becomes of them.

    If it is a lane, what is done to them is written in the records of its queue, by which their jobs are found.
    """
    from penstock.delivery.letters import DeadLetters
    from penstock.events import Listeners
    from penstock.message.wire import Wire

    listeners = Listeners()
    if listener is not None:
        listeners.listen(listener)
    queue = queue_with_lane(app, topic)
    return DeadLetters(lambda: queue.server if queue else app.backend, {topic: Wire(dialect)}, None, listeners)


async def matching(letters: "DeadLetters", ids: Sequence[str], which: Which) -> "AsyncIterator[Letter]":
    """Those with these message or letter ids, all if none is given, as far as they are meant."""
    wanted = {id_given(id) for id in ids}
    async for letter in letters:
        if which.has(letter) and (not wanted or letter.id in wanted or letter.letter_id in wanted):
            yield letter


async def check_there(app: "Penstock", topic: str) -> None:
    """`NotThereError` if no letter can be found there because there is no such topic, or it is divided into others."""
    count = await app.backend.partitions(topic)
    if count is not None:
        names = f"'{topic}:p0' to '{topic}:p{count - 1}'"
        raise NotThereError(f"topic {topic!r} is divided: its dead letters are those of its partitions, {names}")
    if topic not in await app.backend.topics():
        await topic_there(app, topic)


async def the_one(app: "Penstock", topic: str, id: str, group: str | None, dialect: DialectName) -> "Letter":
    """The only letter of this id."""
    found = [letter async for letter in matching(letters_of(app, topic, dialect), [id], Which(group=group))]
    if not found:
        await check_there(app, topic)
        raise NotThereError(f"topic {topic!r} has no dead letter {id}: penstock dead ls {topic} lists those there are")
    if len(found) > 1:
        places = ", ".join(f"{letter.letter_id} (group {letter.group!r})" for letter in found[:5])
        raise UsageError(f"message {id} is more than one dead letter: give the letter id of one, {places}.")
    return found[0]


def by_group(letters: Mapping[str, str]) -> list[tuple[str, int]]:
    """How many each group gave up, of letters with their groups; the group in words."""
    counts = sorted(Counter(letters.values()).items())
    return [(f"group {group!r}" if group else "no group", count) for group, count in counts]


def row_of(letter: "Letter") -> dict[str, Any]:
    """What is said of a letter in a list."""
    return {
        "id": letter.id,
        "topic": letter.topic,
        "group": letter.group,
        "attempts": letter.attempts,
        "first": letter.first,
        "last": letter.last,
        "reason": letter.reason,
        "error": letter.error or None,
        "entry_id": letter.entry_id,
        "letter_id": letter.letter_id,
        "replay": letter.replay or None,
    }


def facts_of(letter: "Letter", dialect: DialectName) -> dict[str, Any]:
    """All that is known of it, with the message as far as it can be read; its fields as they are, if it cannot be."""
    from penstock.message.wire import Wire

    more = {"traceparent": letter.traceparent or None, "traceback": letter.traceback or None}
    try:
        message = Wire(dialect).unpack(letter.topic, letter.entry_id, letter.raw)
    except MalformedError as error:
        fields = dict(zip(map(_text, letter.raw[::2]), map(_text, letter.raw[1::2]), strict=False))
        return row_of(letter) | more | {"malformed": str(error), "fields": fields}
    content = {"type": message.type, "key": message.key, "headers": message.headers, "body": message.body}
    return row_of(letter) | more | content


def _text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")
