"""`penstock up`: the embedded server, in the foreground, for as long as the terminal wants it."""

import shlex
import signal
from pathlib import Path
from threading import Event
from typing import Annotated

from cyclopts import Parameter

from penstock.backend.embedded import EmbeddedServer
from penstock.backend.embedded_talk import is_listening
from penstock.cli.leaving import stopping_signals
from penstock.cli.saying import say
from penstock.cli.usage import UsageError
from penstock.errors import EmbeddedServerError

_LOOK_SECONDS = 1.0


def up(
    *,
    dir: Path | None = None,
    ephemeral: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    tcp: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
) -> None:
    """Run the embedded Valkey server until Ctrl-C.

    Parameters
    ----------
    dir
        Keep the data in this directory instead of in your state directory.
    ephemeral
        Keep nothing: an empty server whose data is deleted when it stops.
    tcp
        Listen on a free port of 127.0.0.1 too, where every user of this machine can connect.
    """
    if ephemeral and dir is not None:
        raise UsageError("--ephemeral keeps nothing, so it cannot go with --dir: give one of them.")
    stop = Event()
    for number in stopping_signals():
        signal.signal(number, lambda _number, _frame: stop.set())
    with EmbeddedServer.start(dir, ephemeral=ephemeral, tcp=tcp) as server:
        say(description(server, ephemeral=ephemeral))
        while not stop.wait(_LOOK_SECONDS):
            if not is_listening(server.socket_path):
                raise EmbeddedServerError(f"the embedded server ended by itself; its log is in {server.directory}")
    say("Stopped.")


def description(server: EmbeddedServer, *, ephemeral: bool) -> str:
    """What to paste where. The URL is good for every Penstock program of the same user."""
    on_socket = f"redis-cli -s {shlex.quote(str(server.socket_path))}"
    lines = [
        "The embedded server is running. It ends with the last program that uses it.",
        "",
        f"  URL      {server.url}",
        f"  data     {server.directory}{' (deleted at the end)' if ephemeral else ''}",
        f"  connect  export PENSTOCK_URL={shlex.quote(server.url)}",
        f"           {on_socket if server.port is None else f'redis-cli -p {server.port}'}",
    ]
    return "\n".join([*lines, "", "Ctrl-C to stop."])
