"""Whoever gets no turn for long is noticed: else the checker would take for a fault what the machine did."""

import signal
import time

from tests.fault.rows import row
from tests.fault.scene import Scene


@row("the witness itself")
async def test_a_server_that_stands_still_is_noticed(scene: Scene) -> None:
    began, process = time.monotonic(), scene.server.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.6)
    process.send_signal(signal.SIGCONT)
    (line,) = await scene.first(1, "stalled", where=lambda line: line.at > began + 0.6)
    assert line.at - line.facts["since"] > 0.5


@row("the witness itself")
async def test_a_worker_that_stands_still_is_noticed(scene: Scene) -> None:
    (still,) = scene.work(1)
    await scene.ready()
    began = time.monotonic()
    still.process.send_signal(signal.SIGSTOP)
    time.sleep(0.6)
    still.process.send_signal(signal.SIGCONT)
    await scene.first(1, "stalled", where=lambda line: line.pid == still.pid and line.at > began + 0.6)
    assert scene.history().stalled(still.pid, began, began + 0.6)
