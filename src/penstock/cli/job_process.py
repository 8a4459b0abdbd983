"""A process in which a worker has handlers run: `python -m penstock.cli.job_process MODULE:APP WIRE`."""

import signal
import socket
import sys

from penstock.cli.loading import load_app, log_events
from penstock.jobs.process_side import ProcessSide
from penstock.jobs.queue import JobQueue


def main(target: str, wire: int) -> None:
    # The worker decides when this ends: it kills it, or leaves.
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    app = load_app(target)
    log_events()
    queues = {face.name: face for face in app.handled_faces if isinstance(face, JobQueue)}
    ProcessSide(socket.socket(fileno=wire), queues).run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
