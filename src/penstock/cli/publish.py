"""`penstock publish`: messages from the command line, a file, or the lines of stdin."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from penstock.cli.given import Body, File, body_given, headers_given, stdin, uuid_given
from penstock.cli.moments import Span
from penstock.cli.printing import Form, printing
from penstock.cli.progress import has_room, progress
from penstock.cli.saying import warn
from penstock.cli.servers import HERE, At, connected
from penstock.cli.stdin_lines import Line, lines_of
from penstock.cli.usage import UsageError
from penstock.diagnosis.finding import amount
from penstock.errors import PenstockError, PublishError, PublishUnknownError, ServerError, ServerUnreachableError
from penstock.options import Limits

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.bus.bus import Bus
    from penstock.bus.publisher import Receipt

_COLUMNS = ("id", "entry_id", "topic", "duplicate")
_LONGEST = 8 * Limits().payload_bytes
"""Of a line in bytes: with its escapes and blanks it may be longer than what is sent."""

_TURNS = 3
"""Of the loop, until a connection that was closed while nobody looked is known to be: it is read, ends, and says so."""


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """What is said about a message, as the command line says it."""

    key: str | None = None
    """What the messages are about."""

    type: str | None = None
    """The name of their type."""

    id: str | None = None
    """The UUID of the message: published again within a day under the same one, it is stored once."""

    once: Annotated[bool, Parameter(negative=(), show_default=False)] = False
    """Have each stored once, also if an answer of the server is lost on the way."""

    headers: Annotated[tuple[str, ...], Parameter(name=["--header", "-H"], negative=(), show_default=False)] = ()
    """Like source=shop; may be given several times."""

    delay: Span | None = None
    """Let it appear on the topic only after this long, like 10m."""


def publish(
    topic: str,
    body: Body = None,
    /,
    *,
    file: File = None,
    text: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    envelope: Annotated[Envelope | None, Parameter(name="*")] = None,
    output: Form = None,
    server: At = HERE,
) -> None:
    """Publish a message, or one for each line of stdin, and print where each is.

    Parameters
    ----------
    topic
        It is made if there is none.
    body
        The message, as JSON. Without it, and without --file, each line of stdin is one.
    file
        The message is what is in this file; - is stdin.
    text
        Bodies are plain text, no JSON.
    """
    said = envelope or Envelope()
    if body == "-" and not text:
        raise UsageError("- is no JSON: without a body each line of stdin is a message, and --file - is one.")
    given = body_given(body, file)
    if given is None and said.id is not None:
        raise UsageError("--id is the id of one message: give its body, or --file.")
    is_typed = given is None and sys.stdin is not None and sys.stdin.isatty()
    if is_typed:
        warn(f"each line that you type is a message, as {'text' if text else 'JSON'}; Ctrl-D ends")
    with connected(server) as (app, runner), printing(output, _COLUMNS, live=True) as printer:
        bus, place = runner.run(_bus_of(app, topic)), str(server.address())
        sender = _Sender(bus, said, is_text=text, is_only=given is not None, place=place)
        has_bar = given is None and not is_typed and has_room(output)
        half_done = partial(_half_published, topic) if given is None else None
        with progress("publishing", interrupted=half_done, is_shown=has_bar) as show:
            for some in lines_of(stdin(), _LONGEST) if given is None else [[Line(1, given)]]:
                rows = runner.run(sender.send(some))
                show(sender.sent)
                for row in rows:
                    printer.write(row)
                sys.stdout.flush()
                if sender.halted_by is not None:
                    raise sender.halted_by
    if sender.failed:
        raise PublishError(f"{sender.failed:,} of {sender.seen:,} messages were not published: see above")


def _half_published(topic: str, count: int) -> str:
    return f"published to {topic!r} so far: about {amount(count, 'message')}"


async def _bus_of(app: "Penstock", topic: str) -> "Bus":
    """Of a topic that is divided, one that sends to the partition of each key: nobody reads the topic itself."""
    partitions = await app.backend.partitions(topic)
    return app.bus(topic) if partitions is None else app.bus(topic, partitions=partitions, ordering="key")


class _Sender:
    """Sends messages to one topic, and counts them."""

    def __init__(self, bus: "Bus", said: Envelope, *, is_text: bool, is_only: bool, place: str) -> None:
        self.seen = self.sent = self.failed = 0
        self.halted_by: PenstockError | None = None
        """What is wrong with the server, if anything is: there is no use in going on."""

        self._bus = bus
        self._said = said
        self._headers = headers_given(said.headers)
        self._is_text = is_text
        self._is_only = is_only
        self._place = place

    async def send(self, lines: Sequence[Line]) -> list[dict[str, Any]]:
        """The receipts of those that were published; what is wrong with the others is said on stderr.

        Raises what is wrong with a message that was given as the only one. How many lines come together says nothing.
        """
        found, numbers = [], []
        for line in lines:
            self.seen += 1
            try:
                found.append(self._message(line.text))
                numbers.append(line.number)
            except UsageError as error:
                if self._is_only:
                    raise
                self._fail(line.number, error)
        rows, unknown, unsent = [], list[tuple[int, str]](), list[ServerError]()
        for number, message, receipt in zip(numbers, found, await self._results(found), strict=True):
            if isinstance(receipt, PenstockError) and self._is_only:
                raise receipt
            if isinstance(receipt, PublishUnknownError):
                unknown.append((number, message.id))
            elif isinstance(receipt, ServerError):
                unsent.append(receipt)
            elif isinstance(receipt, PenstockError):
                self._fail(number, receipt)
            else:
                rows.append({name: getattr(receipt, name) for name in _COLUMNS})
        self.sent += len(rows)
        if unknown or unsent:
            self.halted_by = self._halt(unknown, unsent)
        return rows

    def _halt(self, unknown: "list[tuple[int, str]]", unsent: list[ServerError]) -> PenstockError:
        """Why there is no use in going on; if the server is gone, with what is known of which messages."""
        if unsent and not unknown and not isinstance(unsent[0], ServerUnreachableError):
            return unsent[0]
        known = [str(unsent[0]) if unsent else f"the connection to {self._place} broke"]
        known.append(f"{self.sent:,} of {self.seen:,} messages are published")
        if unknown:
            (first, first_id), (last, last_id) = unknown[0], unknown[-1]
            places = f"lines {first:,} to {last:,}, ids {first_id} to {last_id}"
            if len(unknown) == 1:
                places = f"line {first:,}, id {first_id}"
            known.append(f"not known of {len(unknown):,} more: {places}")
        if unsent:
            known.append(f"not sent: {len(unsent):,}")
        return ServerUnreachableError("; ".join(known))

    async def _results(self, messages: list[Any]) -> "Sequence[Receipt | PenstockError]":
        from penstock.options import Sending

        for _ in range(_TURNS):
            await asyncio.sleep(0)  # else what is sent first after a long wait for stdin may go to nobody
        once = self._said.once or self._said.id is not None
        if self._said.delay is None:
            return await self._bus.publish_many(messages, once=once)
        sending = Sending(delay=self._said.delay)
        sent = [self._bus.publish(message, once=once, sending=sending) for message in messages]
        results = await asyncio.gather(*sent, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, PenstockError):
                raise result
        return results  # type: ignore[return-value]  # checked just now

    def _message(self, body: bytes | None) -> Any:
        from penstock.message.ids import new_id
        from penstock.message.message import Message

        said = self._said
        if body is None:
            most = Limits().payload_bytes
            raise UsageError(f"it is longer than {_LONGEST:,} bytes, and the limit is {most:,} for a body.")
        id = new_id() if said.id is None else uuid_given(said.id)
        return Message(self._read(body), id, said.type, said.key, self._headers.copy())

    def _read(self, body: bytes) -> Any:
        try:
            return body.decode() if self._is_text else msgspec.json.decode(body)
        except (UnicodeDecodeError, msgspec.DecodeError) as error:
            hint = "" if self._is_text else "; --text takes plain text"
            raise UsageError(f"the body cannot be read: {error}{hint}.") from error

    def _fail(self, number: int, error: Exception) -> None:
        self.failed += 1
        warn(f"line {number:,}: {error}")
