"""The trails of all streams of a query, walked on while Spark is busy with the batch before."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from penstock.backend.address import Address
from penstock.spark.offsets import Piece
from penstock.spark.scout import Trail


class Trails:
    """One thread walks; whoever asks for a stream's trail waits for it first."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._trails: dict[str, Trail] = {}
        self._walking: dict[str, Future[None]] = {}
        self._walker = ThreadPoolExecutor(1, "penstock-scout")

    def cut(self, stream: str, after: str, sizes: Sequence[int], upto: str) -> list[Piece]:
        """Pieces of so many entries, the first of them behind `after`; fewer or smaller if there are not so many."""
        return self._at(stream, after).cut(sizes, upto)

    def entry_bytes(self, stream: str, after: str, upto: str) -> float:
        """What an entry of the stream takes on the wire, on average of those seen lately; 1 if there is none."""
        trail = self._at(stream, after)
        trail.reach(1, upto)
        return trail.entry_bytes or 1.0

    def walk_ahead(self, stream: str, count: int, upto: str) -> None:
        """Find the next `count` entries behind the last cut, up to `upto`, before they are asked for."""
        if (trail := self._trails.get(stream)) is not None:
            self._walking[stream] = self._walker.submit(trail.reach, count, upto)

    def forget(self, stream: str) -> None:
        """What was walked over is not there any more."""
        self._at(stream, "")

    def stop(self) -> None:
        for trail in self._trails.values():
            trail.stop()
        self._walker.shutdown(wait=False, cancel_futures=True)

    def _at(self, stream: str, after: str) -> Trail:
        walking = self._walking.pop(stream, None)
        if walking is not None:
            walking.result()
        trail = self._trails.get(stream)
        if trail is None or trail.after != after:
            trail = self._trails[stream] = Trail(self._address, stream, after)
        return trail
