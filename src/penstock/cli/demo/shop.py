"""The play: the shop opens, its bank fails, what was given up is replayed, and it closes when all is settled."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from penstock.app import Penstock
from penstock.cli.demo import follower, producers, services
from penstock.cli.demo.books import Books
from penstock.cli.demo.goods import BILLING, ORDERS, SHIPPING
from penstock.cli.demo.sabotage import Sabotage
from penstock.delivery.letters import Letter
from penstock.diagnosis.finding import amount

_DRAIN_SECONDS = 5.0
_QUIET_SECONDS = 3.0


class Shop:
    """One day of it, on one server."""

    def __init__(self, url: str, books: Books, tell: Callable[[str], None], sabotage: Sabotage | None = None) -> None:
        self._url = url
        self._books = books
        self._tell = tell
        self._sabotage = sabotage
        self._bank = services.Bank()
        self._is_followed = follower.is_possible()

    async def run(self, seconds: float, patience: float) -> dict[str, int]:
        """Work off all orders, published within about so many seconds; returns how many dead letters each group has.

        If nothing at all has happened for `patience` seconds it is over as well: the books tell what is missing.
        """
        async with Penstock.connect(self._url, logs=None) as office, self._staff() as staff, self._audience():
            await self._trade(office, staff, seconds, patience)
        async with office:
            groups = (BILLING, SHIPPING)
            return {group: await office.bus(ORDERS, group=group).dead.count() for group in groups}

    async def _trade(
        self, office: Penstock, staff: dict[str, asyncio.Task[None]], seconds: float, patience: float
    ) -> None:
        books = self._books
        publishing = asyncio.create_task(producers.publish(self._url, books, seconds, self._sabotage))
        try:
            if self._sabotage is Sabotage.KILL:
                await books.wait(lambda: books.handled[BILLING] > books.wanted // 3, patience)
                staff[BILLING].cancel()
            await publishing
        finally:
            publishing.cancel()
        self._tell(f"{len(books.published):,} orders are published, one of them unreadable")
        await books.wait(lambda: books.is_settled(BILLING), patience)
        await self._replay(office)
        if await books.wait(self._is_done, min(_QUIET_SECONDS, patience)):
            return
        self._tell(f"Nothing happens, and not everything is settled: {patience:g} s more, in case something is late")
        if not await books.wait(self._is_done, patience):
            self._tell("Nothing has happened since: that is all there will be")

    async def _replay(self, office: Penstock) -> None:
        """What an operator does when the cause is mended: give back what died of it, and nothing else."""
        letters = office.bus(ORDERS, group=BILLING).dead
        reasons = Counter([letter.error.rpartition(".")[2] or "unreadable" async for letter in letters])
        told = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common())
        self._tell(f"Billing gave {reasons.total():,} up: {told}")
        self._bank.is_mended = True
        report = await letters.replay(where=_died_of_the_bank)
        self._books.replayed = report.replayed
        self._tell(f"The bank is mended: {amount(report.replayed, 'dead letter')} replayed, to billing alone")

    def _is_done(self) -> bool:
        books = self._books
        is_followed = not self._is_followed or len(books.followed) >= len(books.published)
        return books.is_settled(BILLING, SHIPPING) and books.is_worked_off() and is_followed

    @asynccontextmanager
    async def _staff(self) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
        """Those who handle and do. They drain when this is left; what kept one of them from working is raised."""
        url, books = self._url, self._books
        staff = {
            BILLING: services.billing(url, books, self._bank, self._sabotage),
            SHIPPING: services.shipping(url, books),
            "packing": services.packing(url, books),
        }
        tasks = {name: asyncio.create_task(service.run()) for name, service in staff.items()}
        try:
            yield tasks
        finally:
            for service in staff.values():
                service.app.stop()
            await _end(tasks.values(), _DRAIN_SECONDS)
        for task in tasks.values():
            if not task.cancelled():
                task.result()

    @asynccontextmanager
    async def _audience(self) -> AsyncIterator[None]:
        """Those who only look on."""
        tasks = [asyncio.create_task(services.watch_the_stock(self._url, self._books))]
        if self._is_followed:
            tasks.append(asyncio.create_task(follower.serve_and_follow(self._url, self._books, self._tell)))
        else:
            self._tell("Nobody follows over HTTP: for that, run `pip install 'penstock[web]'`")
        try:
            yield
        finally:
            await _end(tasks, 0)
        for task in tasks:
            if not task.cancelled():
                task.result()


def _died_of_the_bank(letter: Letter) -> bool:
    return letter.error == "builtins.ConnectionError"


async def _end(tasks: Iterable[asyncio.Task[None]], seconds: float) -> None:
    """Wait for them so long, then have them end."""
    waiting = list(tasks)
    _, late = await asyncio.wait(waiting, timeout=seconds)
    for task in late:
        task.cancel()
    await asyncio.wait(waiting)
