"""`penstock run`: an app's handlers, as a process that a service manager can look after.

Exit codes: 0 asked to stop, and drained; 1 it could not start, or did not end in time; 2 the command line makes no
sense; 4 the server cannot be reached; killed by SIGTERM or SIGINT (143 or 130 in a shell) if that came twice.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.given import Count
from penstock.cli.leaving import LastResort, StopRequest
from penstock.cli.liveness import Endpoint, LivenessFile, LivenessPort, Pulse
from penstock.cli.loading import check_server, check_target, choose_server, load_app, log_events
from penstock.cli.saying import say
from penstock.cli.serving import Processes, Service, Terms
from penstock.cli.usage import UsageError
from penstock.cli.worker import Settings


def run(
    target: Annotated[str, Parameter(name="MODULE:APP")],
    /,
    *,
    url: str | None = None,
    embedded: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    workers: Count = 1,
    processes: int = 0,
    concurrency: Count = 100,
    liveness_file: Path | None = None,
    liveness_port: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
) -> None:
    """Run the handlers of an app until SIGTERM or Ctrl-C, then drain; asked twice, end at once.

    Exit code 0: drained. 1: it could not start, or did not end in time. 2: the command line makes no sense. 4: the
    server cannot be reached.

    Parameters
    ----------
    target
        Where the app is: shop.orders:app is `app` in the module shop.orders, looked for in this directory too.
    url
        The server, instead of the app's own URL or $PENSTOCK_URL.
    embedded
        Use the private server of this user, and start it if need be.
    workers
        How many processes. More than one are started, watched over and replaced by this one.
    processes
        How many more processes each of these has, for the handlers of jobs that want one: on(..., process=True).
    concurrency
        How many handlers run at the same time for each topic of a bus and for each queue, in each process.
    liveness_file
        Touch this file while the event loop turns, and remove it at the end.
    liveness_port
        Answer HTTP on this [HOST:]PORT with 200 while the event loop turns, else with 503. The host is 127.0.0.1
        unless given; a probe from another machine or container needs 0.0.0.0:PORT. Port 0 takes a free one.
    """
    check_target(target)
    check_server(url, embedded=embedded)
    if processes < 0:
        raise UsageError(f"--processes is a number of at least 0, not {processes}.")
    port = None if liveness_port is None else Endpoint.parse(liveness_port)
    file = None if liveness_file is None else LivenessFile(liveness_file)
    if workers > 1:
        from penstock.cli.supervisor import Supervisor

        settings = Settings(target, url, concurrency, processes)
        sys.exit(Supervisor(settings, workers, file, port, embedded=embedded).run())
    _run_here(Settings(target, url, concurrency, processes), file, port, embedded=embedded)


def _run_here(settings: Settings, file: LivenessFile | None, port: Endpoint | None, *, embedded: bool) -> None:
    target = settings.target
    last_resort = LastResort(None if file is None else file.remove)
    stop = StopRequest(last_resort)
    stop.catch_signals()
    pulse = Pulse()
    if port is not None:
        say(f"Liveness on {LivenessPort(port, pulse.is_alive).url}")
    app = load_app(target)
    place = choose_server(app, settings.url, embedded=embedded, alone=True)
    log_events()
    pulse.patience = Terms.of(app).patience
    beats: list[Callable[[], None]] = [pulse.beat, *([file.touch] if file is not None else [])]

    service = Service(
        app,
        stop,
        last_resort,
        concurrency=settings.concurrency,
        processes=Processes(settings.processes, target),
        beats=beats,
        ready=lambda: say(f"Running {target} on {place}. Ctrl-C to stop."),
        draining=lambda: say("Draining. Ctrl-C again to end at once."),
    )
    try:
        service.run()
    finally:
        if file is not None:
            file.remove()
    say("Stopped.")
