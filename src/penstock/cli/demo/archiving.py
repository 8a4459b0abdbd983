"""Spark, behind the shop: installed if need be, then at work as `penstock pipeline archive`, into a lake."""

import asyncio
import importlib
import importlib.util
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.cli.demo.goods import ORDERS, STOCK
from penstock.cli.demo.programs import last_words, running
from penstock.errors import LakeError, PenstockError

_INSTALL, _ARCHIVE = "install", "archive"
_COMMAND = (sys.executable, "-c", "from penstock.cli.main import main; main()")
_LOOK_SECONDS = 0.25
_START_SECONDS = 120.0
_PATIENCE_SECONDS = 20.0
"""From one batch to the next, once Spark has started: a busy machine needs several."""

_END_SECONDS = 60.0
_COUNTS = f"""
    SELECT count(*) FILTER (topic = '{ORDERS}') AS orders,
           count(DISTINCT entry_id) FILTER (topic = '{ORDERS}') AS different,
           count(*) FILTER (topic = '{STOCK}') AS changes,
           count(DISTINCT entry_id) FILTER (topic = '{STOCK}') AS different_changes
    FROM (SELECT topic, entry_id FROM raw UNION ALL SELECT topic, entry_id FROM malformed)
"""  # noqa: S608 - names of our own
_TAKINGS = f"SELECT coalesce(sum(total), 0)::BIGINT AS takings FROM {ORDERS} WHERE total > 0"  # noqa: S608


class LakeCounts(NamedTuple):
    """What is in the lake, as anybody would count it later."""

    orders: int
    different: int
    changes: int
    different_changes: int
    takings: int


class NoSparkError(PenstockError):
    """There is no Spark here, and nobody said how to get it: there will be no lake."""


class ArchiveFailedError(PenstockError):
    """Spark was to archive the topics, and did not."""


class Archiving:
    """One lake, and how far it has come."""

    def __init__(self, url: str, place: Path, prepare: Sequence[str], tell: Callable[[str], None]) -> None:
        self.state = "waits for the shop to open"
        """In words."""

        self.rows = 0
        self._url = url
        self._lake = place / "lake"
        self._place = place
        self._prepare = prepare
        self._tell = tell
        self._target: int | None = None
        self._moved = time.monotonic()

    def end_with(self, rows: int) -> None:
        """Have it end once so many entries are in the lake: no more will come."""
        self._target, self._moved = rows, time.monotonic()

    async def run(self) -> None:
        """Archive until the lake has all there is. Raises `NoSparkError`, or `ArchiveFailedError` with the reason."""
        if self._prepare:
            await self._install()
        _check_installed()
        self.state = "Spark starts"
        self._tell("Spark starts behind it, to archive orders and stock to a lake")
        arguments = ["pipeline", "archive", ORDERS, STOCK, "--lake", str(self._lake), "--url", self._url]
        async with running([*_COMMAND, *arguments, "--every", "1s"], self._place, _ARCHIVE) as process:
            ended = asyncio.create_task(process.wait())
            await self._watch(ended)
            if not ended.done():
                process.send_signal(signal.SIGTERM)
            await asyncio.wait([ended], timeout=_END_SECONDS)
            if not ended.done():
                raise ArchiveFailedError(f"Spark did not end within {_END_SECONDS:g} s after it was asked to")
            code = ended.result()
        if code != 0:
            raise ArchiveFailedError(f"the archive ended with exit code {code}: {last_words(self._place, _ARCHIVE)}")
        self._tell(f"Spark has brought {self.rows:,} entries to the lake")

    def counts(self) -> LakeCounts:
        """Asked of the lake's files by DuckDB: neither Spark nor the server have a part in it."""
        from penstock.lake import Lake, tables

        try:
            lake = Lake.open(self._lake)
            (found,) = tables.query(lake, _COUNTS).to_pylist()
            (sums,) = tables.query(lake, _TAKINGS).to_pylist()
        except LakeError as error:
            raise ArchiveFailedError(f"the lake cannot be counted: {error}") from error
        return LakeCounts(**found, **sums)

    async def _install(self) -> None:
        self.state = "Spark is being installed"
        async with running(self._prepare, self._place, _INSTALL) as process:
            waiting = asyncio.get_running_loop().call_later(
                1.0, self._tell, "Spark is being installed behind it; that takes a minute or two, once"
            )
            code = await process.wait()
            waiting.cancel()
        importlib.invalidate_caches()
        if code != 0:
            raise ArchiveFailedError(f"Spark could not be installed: {last_words(self._place, _INSTALL)}")

    async def _watch(self, ended: "asyncio.Task[int]") -> None:
        """Look how far it is, until all is there, it has ended, or nothing comes any more."""
        while not ended.done() and (self._target is None or self.rows < self._target):
            if (rows := _rows_in(self._lake)) != self.rows:
                self.rows, self.state, self._moved = rows, f"{rows:,} entries in the lake", time.monotonic()
            patience = _PATIENCE_SECONDS if self.rows else _START_SECONDS
            if self._target is not None and time.monotonic() - self._moved > patience:
                break
            await asyncio.sleep(_LOOK_SECONDS)


def _check_installed() -> None:
    from penstock.spark.start.doctor import missing

    lacking = missing() + [name for name in ("duckdb",) if importlib.util.find_spec(name) is None]
    if lacking:
        raise NoSparkError(
            f"not installed are {', '.join(lacking)}; for a lake, run `pip install 'penstock[spark,lake]'`"
        )


def _rows_in(place: Path) -> int:
    from penstock.lake import Lake

    lake = Lake(place)
    if not lake.exists():
        return 0
    return sum(file.rows for file in lake.snapshot().files.values() if file.table in ("raw", "malformed"))
