"""Which server a command means. Never one that nobody has asked for: an empty private one would answer wrongly."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

from cyclopts import Parameter

from penstock.backend.address import URL_VARIABLE, Address, parse
from penstock.cli.contexts import load_contexts
from penstock.cli.usage import UsageError

if TYPE_CHECKING:
    from penstock.app import Penstock

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Server:
    """The server, as the command line says it."""

    url: str | None = None
    """The server, like redis://host:6379/0; else that of --context, else $PENSTOCK_URL, else the current context."""

    context: str | None = None
    """A server by the name that `penstock context add` gave it."""

    def found(self) -> tuple[str, str]:
        """Its URL, and who says so; `UsageError` if nobody does."""
        if self.url is not None and self.context is not None:
            raise UsageError("--url and --context both name a server: give one of them.")
        if "" in (self.url, self.context):  # as of a variable of a script that is not set: no other server is meant
            raise UsageError(f"{'--url' if self.url == '' else '--context'} is empty: name a server, or leave it out.")
        if self.url is not None:
            return self.url, "--url"
        if self.context is None and (url := os.environ.get(URL_VARIABLE)):
            return url, f"${URL_VARIABLE}"
        contexts = load_contexts()
        name = contexts.current if self.context is None else self.context
        if name is None:
            raise UsageError(
                f"no server: give --url or --context, or set ${URL_VARIABLE}, or choose one with penstock context use."
                " If you have none, penstock up runs one and prints its URL; --url embedded:// starts the same one for"
                " the time of a command."
            )
        return contexts.url(name), f"context {name!r}"

    def found_beside_environment(self) -> str | None:
        """Its URL; None if $PENSTOCK_URL has it, where Spark finds it by itself, and does not show it to anybody."""
        self.address()
        url, source = self.found()
        return None if source == f"${URL_VARIABLE}" else url

    def address(self) -> Address:
        """Where it is; printing it shows no password."""
        url, source = self.found()
        return parse(url, source=source)

    def reach(self) -> None:
        """Raise if it does not answer: for what takes long to start. One that is embedded is not started yet."""
        address = self.address()
        if address.kind != "embedded":
            from penstock.backend.redis.blocking import BlockingLink

            BlockingLink.open(address).close()

    def app(self) -> "Penstock":
        """An app that connects there on `async with`."""
        from penstock.app import Penstock  # it loads the client, which `--help` does not need

        self.address()
        return Penstock.connect(self.found()[0])


At: TypeAlias = Annotated[Server, Parameter(name="*")]
"""For the last argument of a command that asks a server: `server: At = HERE`."""

HERE = Server()


def ask(server: Server, what: "Callable[[Penstock], Awaitable[T]]") -> T:
    """Connect, await `what` with the app, and let go of the server again."""

    async def asked() -> T:
        return await what(app)

    with connected(server) as (app, runner):
        return runner.run(asked())


@contextmanager
def connected(server: Server) -> "Iterator[tuple[Penstock, asyncio.Runner]]":
    """An app that is connected, and who runs what is asked of it; for commands that do other things in between.

    Ctrl-C is a KeyboardInterrupt here, also while something is read from stdin: no task is in its way.
    """
    with asyncio.Runner() as runner:
        app = server.app()
        runner.run(app.open())
        try:
            yield app, runner
        finally:
            runner.run(app.aclose())
