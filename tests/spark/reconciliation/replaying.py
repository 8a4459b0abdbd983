"""One process that replays messages from the lake, with a gallows at every step.

Arguments: the directory of the run, and the replay as JSON. The server's URL is in `$PENSTOCK_URL`.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from penstock.lake.selection import Selection
from penstock.spark.pipelines.replay import Replay
from penstock.spark.sink.outflow import Outflow
from penstock.spark.sink.writers import Sink
from tests.spark.gallows import PLACE, step
from tests.spark.reconciliation.driver import LAKE

REPLAY_STEPS = ("replay-write", "replay-written", "replay-done-before", "replay-done-after")
_PER_SECOND = 200


def hang_over_the_replay() -> None:
    write, finish = Outflow.write, Sink.finish

    def writing(self: Outflow, rows: Any) -> None:
        step("replay-write")
        write(self, rows)
        step("replay-written")

    def finishing(self: Sink, messages: Any, *rest: Any, **options: Any) -> None:
        step("replay-done-before")
        finish(self, messages, *rest, **options)
        step("replay-done-after")

    Outflow.write, Sink.finish = writing, finishing  # type: ignore[method-assign]


def main(directory: str, asked: str) -> None:
    os.environ[PLACE] = directory
    hang_over_the_replay()
    words = json.loads(asked)
    selection = Selection(**words.pop("selection"))
    # At a rate, so that it is written in more than one piece.
    Replay(lake=Path(directory) / LAKE, rate=_PER_SECOND, selection=selection, **words).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
