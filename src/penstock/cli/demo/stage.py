"""One performance: the shop, Spark behind it, what one sees of both, and the reckoning."""

import asyncio
from pathlib import Path

from rich.console import Console

from penstock.cli.demo.archiving import ArchiveFailedError, Archiving, LakeCounts, NoSparkError
from penstock.cli.demo.books import Books
from penstock.cli.demo.reconciliation import reconcile, table_of
from penstock.cli.demo.script import DemoFailedError, Script
from penstock.cli.demo.shop import Shop
from penstock.cli.demo.view import Showing, View


class Stage:
    """Where a script is played, on the server at `url`. What Spark leaves behind goes to `place`."""

    def __init__(self, script: Script, url: str, place: Path, console: Console, showing: Showing) -> None:
        self._script = script
        self._console = console
        self.books = Books(script.orders)
        self.view = View(console, self.books, showing)
        self._shop = Shop(url, self.books, self.view.tell, script.sabotage)
        self._archiving = Archiving(url, place, script.prepare, self.view.tell) if script.archive else None
        self.view.archiving = self._archiving

    async def perform(self) -> None:
        """Raises `DemoFailedError` unless everything adds up; the table is shown before."""
        async with self.view.shown():
            archiving = asyncio.create_task(self._archived())
            try:
                dead = await self._shop.run(self._script.seconds, self._script.patience)
                self.view.tell("The shop is closed")
                if self._archiving is not None:
                    self._archiving.end_with(len(self.books.published) + len(self.books.changes))
                lake = await archiving
            finally:
                archiving.cancel()
                await asyncio.wait([archiving])
        lines = reconcile(self.books, dead, lake if isinstance(lake, LakeCounts) else None)
        self._console.print(table_of(lines))
        if isinstance(lake, ArchiveFailedError):
            raise DemoFailedError(str(lake)) from lake
        if wrong := [line.what for line in lines if not line.holds]:
            raise DemoFailedError(f"the books do not balance: {'; '.join(wrong)}")
        self._console.print(
            "It does: nothing was lost, and in this run nothing was done twice.", style="bold green", highlight=False
        )

    async def _archived(self) -> LakeCounts | ArchiveFailedError | None:
        """What came of it, told as soon as it is known: the shop goes on without a lake."""
        if self._archiving is None:
            return None
        try:
            await self._archiving.run()
            return await asyncio.to_thread(self._archiving.counts)
        except NoSparkError as missing:
            self.view.tell(f"There will be no lake: {missing}")
            self.view.archiving = None
            return None
        except ArchiveFailedError as failure:
            self.view.tell(f"There is no lake: {failure}")
            return failure
