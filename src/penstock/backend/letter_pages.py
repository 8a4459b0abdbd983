"""Dead letters for readers without an event loop: by pages of bounded size, and each as a row of facts."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from penstock.backend import keys
from penstock.backend.entry import Letter
from penstock.backend.parcel import open_letter
from penstock.message.times import moment

_AT_ONCE = 100  # of up to a MiB each
_OF_THE_RECORD = (
    "group", "reason", "error", "traceback", "traceparent", "attempts", "first", "last", "replay", "replays", "lost",
    "details",
)  # fmt: skip


class Asks(Protocol):
    """A connection that can be asked one thing at a time."""

    def command(self, doing: str, /, *words: bytes | str | int) -> Any: ...


def letter_pages(line: Asks, topic: str, after: str = "") -> Iterator[Sequence[Letter]]:
    """The dead letters of a topic in their order, from the first or from behind `after`."""
    doing = f"cannot read the dead letters of {topic!r}"
    start = f"({after}" if after else "-"
    while entries := line.command(doing, "XRANGE", keys.dead(topic), start, "+", "COUNT", _AT_ONCE):
        yield [open_letter(topic, id.decode(), raw) for id, raw in entries]
        start = "(" + entries[-1][0].decode()


def facts_of(letter: Letter) -> dict[str, Any]:
    """What is known of a letter besides its fields, by name. Of a broken one that is little."""
    known = {"letter_id": letter.id, "died": moment(int(letter.id.partition("-")[0])), "broken": letter.broken}
    if letter.broken:
        return known
    record = letter.record
    same = {name: getattr(record, name) for name in _OF_THE_RECORD}
    return {**known, **same, "entry_id": record.entry, "id": record.id or None}
