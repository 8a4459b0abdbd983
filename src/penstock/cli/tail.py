"""`penstock tail`: what is in topics, and what comes."""

import asyncio
import os
import select
import stat
import sys
from contextlib import AsyncExitStack, nullcontext
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from penstock.cli.dialects import Dialect
from penstock.cli.looking import absent
from penstock.cli.messages import IN_A_ROW, Messages, printing_messages
from penstock.cli.places import Place
from penstock.cli.printing import Form
from penstock.cli.saying import warn
from penstock.cli.servers import HERE, At, connected
from penstock.cli.until_stopped import until_stopped
from penstock.cli.usage import UsageError
from penstock.errors import AuthenticationError, ServerError, ServerTooOldError

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.continuity.step import Step
    from penstock.message.message import Message
    from penstock.message.wire import Wire
    from penstock.tail.alone import LoneReader
    from penstock.tail.places import After

_LAST = 10


def tail(
    *topics: str,
    last: Annotated[int | None, Parameter(name=["--last", "-n"], show_default=False)] = None,
    after: Place | None = None,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative=(), show_default=False)] = False,
    types: Annotated[tuple[str, ...], Parameter(name=["--type", "--types"], negative=(), show_default=False)] = (),
    keys: Annotated[tuple[str, ...], Parameter(name=["--key", "--keys"], negative=(), show_default=False)] = (),
    dialect: Dialect = "native",
    output: Form = None,
    server: At = HERE,
) -> None:
    """Show the last messages of topics, or those behind a place, oldest first; and then those that come, if asked.

    Nothing is skipped: it reads at its own pace, and what was removed before it came to it is told on stderr. Only on a
    terminal long bodies are cut at its edge: penstock get, a pipe or another form than a table shows all of them.

    Parameters
    ----------
    topics
        One topic or several.
    last
        Begin with so many entries before the end; 10 unless given.
    after
        Begin behind this place instead: earliest, latest, an entry id, a message's UUID, or a moment, like
        2026-11-15T08:00Z, yesterday, or 10m for ten minutes ago.
    follow
        Go on with what comes, until Ctrl-C or SIGTERM.
    types
        Of these only messages of this type.
    keys
        Of these only messages with this key.
    """
    if not topics:
        raise UsageError("Name at least one topic.")
    if last is not None and last < 0:
        raise UsageError(f"--last is a number of at least 0, not {last}.")
    if last is not None and after is not None:
        raise UsageError("--last and --after both say where to begin: give one of them.")
    columns = tuple(name for name in IN_A_ROW if name != "topic" or len(topics) > 1)
    with until_stopped() if follow else nullcontext(), connected(server) as (app, runner):
        readers = _Readers(app, _start(last, after), dialect)
        try:
            runner.run(readers.open(topics, wait=follow))
            with printing_messages(output, columns, live=True) as printer:  # heads no answer that there will not be
                runner.run(readers.read(_Shown(printer, frozenset(types), frozenset(keys), follow=follow)))
        finally:
            runner.run(readers.aclose())


def _start(last: int | None, after: "After | None") -> "After":
    from penstock.tail.places import Last

    if after is not None:
        return after
    return Last(_LAST if last is None else last) if last != 0 else "latest"


class _Readers(AsyncExitStack):
    """One for each topic."""

    def __init__(self, app: "Penstock", after: "After", dialect: str) -> None:
        from penstock.message.wire import Wire

        super().__init__()
        self._app = app
        self._after = after
        self._wire = Wire(dialect)
        self._open: list[tuple[str, LoneReader]] = []

    async def open(self, topics: tuple[str, ...], *, wait: bool) -> None:
        """`NotThereError` if one of them is not there, and is not to be waited for."""
        from penstock.tail.alone import LoneReader

        async def one(topic: str) -> "tuple[str, LoneReader]":
            reader = LoneReader(self._app.backend, topic, self._after, self._wire)
            await self.enter_async_context(reader)
            if reader.is_nowhere and not wait:
                raise await absent(self._app, topic, hint="--follow waits for it")
            return topic, reader

        self._open = await asyncio.gather(*map(one, topics))

    async def read(self, shown: "_Shown") -> None:
        """Until all is shown; of what is followed, until whoever reads stdout has left."""
        from penstock.process import spared_by_the_collector

        reading = [asyncio.ensure_future(shown.read(reader, topic, self._wire)) for topic, reader in self._open]
        if shown.follow:
            reading.append(asyncio.ensure_future(_until_unheard()))
        with spared_by_the_collector():
            try:
                await asyncio.gather(*reading)
            finally:
                for one in reading:
                    one.cancel()
                await asyncio.gather(*reading, return_exceptions=True)


async def _until_unheard() -> None:
    """`BrokenPipeError` when the reader of stdout leaves: where nothing comes, writing to it would never tell."""
    try:
        number = sys.stdout.fileno()
        if not stat.S_ISFIFO(os.fstat(number).st_mode):
            return
    except OSError:  # it is no file at all
        return
    loop, noticed, pipe = asyncio.get_running_loop(), asyncio.Event(), select.poll()
    pipe.register(number, 0)  # asked for nothing, it tells only that the other end is closed
    loop.add_reader(number, noticed.set)
    try:
        await noticed.wait()
    finally:
        loop.remove_reader(number)
    if pipe.poll(0):
        raise BrokenPipeError


class _Shown:
    """Which of the messages are shown, and for how long."""

    def __init__(self, printer: Messages, types: frozenset[str], keys: frozenset[str], *, follow: bool) -> None:
        self.follow = follow
        self._printer = printer
        self._types = types
        self._keys = keys

    async def read(self, reader: "LoneReader", topic: str, wire: "Wire") -> None:
        from penstock.backend.pace import Pace

        pace = Pace()
        while True:
            await pace.ready()
            try:
                step = await reader.read()
                self._show(topic, step, wire)
                if step.is_at_end:
                    sys.stdout.flush()
                    if not self.follow:
                        return
                    await reader.wait()
            except (AuthenticationError, ServerTooOldError):
                raise
            except ServerError as error:
                if not self.follow:
                    raise
                pace.failed()
                warn(f"{error}; trying again")
            else:
                pace.succeeded()

    def _show(self, topic: str, step: "Step", wire: "Wire") -> None:
        from penstock.tail.opening import opened_together

        if step.gap is not None:
            self._printer.miss(step.gap)
        entries, opened = step.entries, opened_together(wire, topic, step.entries)
        if self._types or self._keys:
            kept = [pair for pair in zip(entries, opened, strict=True) if self._wants(pair[1])]
            entries, opened = [entry for entry, _ in kept], [one for _, one in kept]
        self._printer.show(topic, entries, opened)

    def _wants(self, one: "Message[object] | Exception") -> bool:
        if isinstance(one, Exception):
            return False
        return (not self._types or one.type in self._types) and (not self._keys or one.key in self._keys)
