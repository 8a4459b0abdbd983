"""`penstock serve`: topics over HTTP, as a process that a service manager can look after.

Exit codes: 0 asked to stop, and every stream is ended; 1 it could not start, or did not end in time; 2 the command line
makes no sense; 4 the server cannot be reached; killed by SIGTERM or SIGINT (143 or 130 in a shell) if that came twice.
"""

import asyncio
import contextlib
import os
import resource
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from penstock.cli.leaving import LastResort, StopRequest
from penstock.cli.loading import check_server, check_target, choose_server, load_app, log_events
from penstock.cli.saying import say
from penstock.cli.usage import UsageError
from penstock.errors import SetupError

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.web.options import WebOptions

TOKEN_VARIABLE = "PENSTOCK_TOKEN"  # noqa: S105 - where it is, not what it is
_FILES_BESIDE = 300  # sockets that are no streams, the server's, logs
_MARGIN_SECONDS = 3.0


@dataclass(frozen=True)
class Terms:
    """What is served, and to whom."""

    read: Annotated[tuple[str, ...], Parameter(name="--read", show_default=" ".join)] = ("*",)
    """A topic that may be followed, or a beginning of names and `*`. May be given more than once."""

    write: Annotated[tuple[str, ...], Parameter(name="--write", show_default=" ".join)] = ("*",)
    """A topic that may be published to, likewise. All, whatever --read says, unless this or --empty-write is given."""

    origins: Annotated[tuple[str, ...], Parameter(name="--origin", negative=(), show_default=False)] = ()
    """Let pages of this origin in, as in https://shop.example. May be given more than once."""

    token_file: Path | None = None
    """Let in who has a token that is a line of this file; or set $PENSTOCK_TOKEN."""

    connections: int = 1000
    """How many may follow at the same time."""

    queue: int = 1000
    """How many messages a client may be behind the newest before it is told of a gap and given newer ones."""


def serve(
    target: Annotated[str | None, Parameter(name="MODULE:APP")] = None,
    /,
    *,
    url: str | None = None,
    embedded: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    host: str = "127.0.0.1",
    port: int = 8000,
    terms: Annotated[Terms, Parameter(name="*")] = Terms(),  # noqa: B008 - frozen
) -> None:
    """Serve topics over HTTP until SIGTERM or Ctrl-C: followed as server-sent events, published to by POST.

    Exit code 0: asked to stop, and stopped. 1: it could not start, or did not end in time. 2: the command line makes no
    sense. 4: the server cannot be reached.

    Parameters
    ----------
    target
        An app whose server, prefix and wire formats to use: shop.orders:app is `app` in the module shop.orders, looked
        for in this directory too. Its handlers are not run. Without it, topics are served as they are.
    url
        The server, instead of the app's own URL or $PENSTOCK_URL.
    embedded
        Use the private server of this user, and start it if need be.
    host
        Where to listen. Anything but this machine itself needs a token.
    port
        Where to listen; 0 takes a free one.
    """
    if target is not None:
        check_target(target)
    check_server(url, embedded=embedded)
    options = _options(terms)
    if not 0 <= port <= 65535:
        raise UsageError(f"--port is from 0 to 65535, not {port}.")
    _check_host(host, is_open=not options.tokens)
    _allow_open_files(terms.connections + _FILES_BESIDE)
    last_resort = LastResort()
    stop = StopRequest(last_resort)
    stop.catch_signals()
    from penstock.app import Penstock  # it loads the client, which `--help` does not need

    app = Penstock.connect() if target is None else load_app(target, handled=False)
    place = choose_server(app, url, embedded=embedded, alone=True)
    log_events()
    from penstock.web.server import END_SECONDS, address_of, listen

    stop.within(END_SECONDS + _MARGIN_SECONDS)
    with contextlib.closing(listen(host, port)) as listening:
        if not stop.is_made:
            says = f"Serving {target or 'topics'} of {place} on {address_of(listening)}. Ctrl-C to stop."
            asyncio.run(_serve(app, options, listening, stop, says))
    last_resort.exit_after(_MARGIN_SECONDS, 0)
    say("Stopped.")


async def _serve(
    app: "Penstock", options: "WebOptions", listening: socket.socket, stop: StopRequest, says: str
) -> None:
    from penstock.web import create_app
    from penstock.web.server import Serving

    async with app:
        await Serving(create_app(app, options), options.connections).run(listening, stop.wait(), lambda: say(says))


def _options(terms: Terms) -> "WebOptions":
    try:
        from penstock.web.options import WebOptions
    except ImportError:
        raise SetupError("serving needs more packages: install them with `pip install 'penstock[web]'`") from None
    return WebOptions(
        read=terms.read,
        write=terms.write,
        origins=terms.origins,
        tokens=_tokens(terms.token_file),
        connections=terms.connections,
        per_topic=terms.connections,
        queue=terms.queue,
    )


def _tokens(file: Path | None) -> tuple[str, ...]:
    """Never from the command line, where all users of the machine see it."""
    tokens = [os.environ.get(TOKEN_VARIABLE, "")]
    if file is not None:
        try:
            tokens += file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            raise UsageError(f"--token-file {file} cannot be read: {error}") from None
        if not any(map(str.strip, tokens)):
            raise UsageError(f"--token-file {file} holds no token.")
    return tuple(token.strip() for token in tokens if token.strip())


def _check_host(host: str, *, is_open: bool) -> None:
    from penstock.web.gate import is_loopback

    try:
        found = {str(address[0]) for *_, address in socket.getaddrinfo(host or None, 0, flags=socket.AI_PASSIVE)}
    except (OSError, UnicodeError):
        raise UsageError(f"--host {host!r} is no name or address of this machine.") from None
    if is_open and not all(map(is_loopback, found)):
        raise UsageError(
            f"--host {host} lets other machines in, so it needs a token: set ${TOKEN_VARIABLE}, or give --token-file."
        )


def _allow_open_files(wanted: int) -> None:
    """Each client is an open file, and the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise UsageError(
            f"--connections needs {wanted:,} open files, and this process may have {hard:,}: raise `ulimit -n`, or"
            f" give at most --connections {max(1, hard - _FILES_BESIDE)}."
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
