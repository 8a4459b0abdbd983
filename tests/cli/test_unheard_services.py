"""Services whose reader has had enough: that nobody listens any more is no reason for them to end."""

import signal

import pytest

from tests.support.commands import leaves
from tests.support.servers import Server
from tests.support.started import Started

SERVICES = {
    "run": "Running ",
    "run --workers 2": "Running ",
    "serve": "Serving ",
    "up --ephemeral": "The embedded server is running",
}


def test_all_services_are_tried() -> None:
    running = {name for name, leaf in leaves().items() if leaf.row.asks in ("as a service", "a server of its own")}
    # A worker speaks to its supervisor only (test_run.py), and the demo is a play (test_demo.py).
    assert {name.partition(" ")[0] for name in SERVICES} == running - {"worker", "demo"}


@pytest.mark.parametrize("merged", [False, True], ids=["", "stderr too"])
@pytest.mark.parametrize("service", SERVICES)
def test_a_service_goes_on_when_its_reader_has_left_and_ends_with_0_when_asked(
    service: str, merged: bool, kept_server: Server
) -> None:
    name, *options = service.split()
    with Started(*leaves()[name].command(), *options, url=kept_server.url, merged=merged) as started:
        started.until(SERVICES[service])
        started.leave()
        started.process.send_signal(signal.SIGTERM)
        done = started.finish()
    assert done.code == 0
    assert "Traceback" not in done.err
    assert "penstock: " not in done.err
