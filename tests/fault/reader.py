"""A process that reads a change stream, as `tests.support.sequential` has it, and notes when it got no turn."""

import msgspec

from tests.fault.witness import Witness
from tests.support import sequential


def note_stalls(path: str) -> None:
    """A line with the time of the last turn, for each time that the next one was long in coming."""
    log = sequential.Log(path)
    Witness(lambda since: log.write_line("stalled", body=since))


def run(setup: str) -> None:
    note_stalls(msgspec.json.decode(setup, type=sequential.Setup).path)
    sequential.run(setup)
