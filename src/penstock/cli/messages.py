"""Messages as they are printed: each in a line of its own, as it comes, or one by one with all that is known of it."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from penstock.backend.entry import Stored
from penstock.backend.facts import written_at
from penstock.cli.printing import Printer, chosen, printing
from penstock.cli.saying import warn
from penstock.cli.tables import Row
from penstock.continuity.gap import Gap
from penstock.errors import MalformedError
from penstock.message.message import Message

Opened: TypeAlias = Message[Any] | MalformedError

IN_A_ROW = ("at", "topic", "entry_id", "type", "key", "body")
"""Of a message among others."""

WHOLE = ("at", "topic", "entry_id", "id", "type", "key", "time", "headers", "traceparent", "body")
"""All that is known of one."""

_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines


class Line(msgspec.Struct, gc=False):
    """A message, with all that is known of it."""

    topic: str
    entry_id: str
    id: str
    type: str | None
    key: str | None
    time: datetime | None
    headers: dict[str, str]
    traceparent: str | None
    body: Any


class NoMessage(msgspec.Struct):
    """An entry that is none; its fields as they are stored, with what is not UTF-8 escaped."""

    topic: str
    entry_id: str
    malformed: str
    fields: list[str]


class Messages:
    """Prints messages. ndjson is written in one piece for all that come together."""

    def __init__(self, form: str, printer: Printer) -> None:
        self._form = form
        self._printer = printer

    def show(self, topic: str, entries: Sequence[Stored], opened: Sequence[Opened]) -> None:
        """These entries, and what is in each."""
        lines = _lines(topic, entries, opened)
        if self._form == "ndjson":
            sys.stdout.buffer.write(_encode_lines(lines))
            return
        for line in lines:
            if self._form == "json":
                self._printer.write(msgspec.to_builtins(line))
            elif isinstance(line, NoMessage):
                warn(f"entry {line.entry_id} of {topic!r} is no message: {line.malformed}")
            elif self._form == "raw":
                self._printer.write({"body": line.body.encode() if isinstance(line.body, str) else _body(line)})
            else:
                self._printer.write(_row(line))

    def miss(self, gap: Gap) -> None:
        """Say what is missing: on stderr, and in the place where it would be."""
        count = "an unknown number of" if gap.count is None else f"{gap.count:,}"
        warn(f"{count} entries of {gap.topic!r} behind {gap.after}, up to {gap.upto or '?'}, are missing: {gap.reason}")
        told = {"topic": gap.topic, "gap": msgspec.to_builtins(gap)}
        if self._form == "ndjson":
            sys.stdout.buffer.write(_encode(told) + b"\n")
        elif self._form == "json":
            self._printer.write(told)


def facts_of(topic: str, entry: Stored, one: Opened) -> Row:
    """All that is known of an entry, for people; what is not there is left out."""
    (line,) = _lines(topic, [entry], [one])
    facts = {"at": written_at(entry.id), **msgspec.structs.asdict(line)} if isinstance(line, NoMessage) else _row(line)
    return {name: value for name, value in facts.items() if value is not None}


@contextmanager
def printing_messages(form: str | None, columns: Sequence[str], *, live: bool = False) -> Iterator[Messages]:
    """Who prints messages. `raw` prints bodies alone: text and bytes as they are, all else as JSON.

    `live`: a table shows each as it comes, with as much of its body as the terminal has room for.
    """
    with printing(form, ("body",) if form == "raw" else columns, live=live) as printer:
        yield Messages(chosen(form), printer)


def _lines(topic: str, entries: Sequence[Stored], opened: Sequence[Opened]) -> list[Line | NoMessage]:
    # In one piece: a call for each of a million costs some hundredths of all time.
    return [
        NoMessage(topic, entry.id, one.reason, [value.decode(errors="backslashreplace") for value in one.raw])
        if isinstance(one, MalformedError)
        else Line(topic, entry.id, one.id, one.type, one.key, one.time, one.headers, one.traceparent, one.body)
        for entry, one in zip(entries, opened, strict=True)
    ]


def _row(line: Line) -> Row:
    row = {name: getattr(line, name) for name in ("topic", "entry_id", "id", "type", "key", "time")}
    return {
        "at": written_at(line.entry_id),
        **row,
        "headers": line.headers or None,
        "traceparent": line.traceparent,
        "body": _body(line).decode("utf-8", "backslashreplace"),
    }


def _body(line: Line) -> bytes:
    return line.body if isinstance(line.body, bytes) else _encode(line.body)
