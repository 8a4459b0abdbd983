"""The books held against each other, and against what others know: the server's dead letters, and the lake."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich import box
from rich.table import Table

from penstock.cli.demo.archiving import LakeCounts
from penstock.cli.demo.books import Books
from penstock.cli.demo.goods import BILLING, SHIPPING
from penstock.options import Priority


class Line(NamedTuple):
    """One thing that must hold."""

    what: str
    expected: str
    found: str
    holds: bool


def reconcile(books: Books, dead: dict[str, int], lake: LakeCounts | None) -> list[Line]:
    """Everything that can be checked: `dead` is what the server has, `lake` what its files hold, None without one."""
    lines = [*_groups(books, dead), *_sequences(books), *_lanes(books)]
    return [*lines, *_archived(books, lake)] if lake is not None else lines


def _groups(books: Books, dead: dict[str, int]) -> Iterator[Line]:
    published = len(books.published)
    for group in (BILLING, SHIPPING):
        handled = books.handled[group]
        holds = handled + dead[group] == published
        yield Line(f"{group}: published = handled + dead", f"{published:,}", f"{handled:,} + {dead[group]:,}", holds)
    once = sum(times == 1 for times in books.charged.values())
    charged_once = once == len(books.charged) == books.handled[BILLING]
    yield Line("billing: handled = charged, each once", f"{books.handled[BILLING]:,}", f"{once:,}", charged_once)


def _sequences(books: Books) -> Iterator[Line]:
    yield _same("stock: each change once, in order", in_order(books.changes), books.seen)
    if books.connections:
        yield _same("follower: each order once, in order", in_order(books.published), books.followed)


def _same(what: str, expected: Sequence[str], found: Sequence[str]) -> Line:
    return Line(what, f"{len(expected):,}", f"{len(found):,}", list(expected) == list(found))


def _lanes(books: Books) -> Iterator[Line]:
    for lane in Priority:
        enqueued, done = books.enqueued[lane], books.done[lane]
        what = f"parcels {lane.value}: enqueued = done"
        yield Line(what, f"{len(enqueued):,}", f"{done.total():,}", enqueued == done)


def _archived(books: Books, lake: LakeCounts) -> Iterator[Line]:
    pairs = [
        ("lake: orders, each once", len(books.published), lake.orders, lake.different),
        ("lake: changes, each once", len(books.changes), lake.changes, lake.different_changes),
        ("lake: the total of orders = charged", books.takings, lake.takings, lake.takings),
    ]
    for what, expected, found, different in pairs:
        yield Line(what, f"{expected:,}", f"{found:,}", expected == found == different)


def in_order(entry_ids: Sequence[str]) -> list[str]:
    """As the stream has them. Producers that publish side by side learn of theirs in any order."""
    return sorted(entry_ids, key=lambda entry_id: tuple(map(int, entry_id.split("-"))))


def table_of(lines: Sequence[Line]) -> Table:
    table = Table("Does it add up?", box=box.SIMPLE_HEAD)
    table.add_column("expected", justify="right")
    table.add_column("found", justify="right")
    table.add_column("")
    for line in lines:
        verdict = "[green]✓[/]" if line.holds else "[red]✗[/]"
        table.add_row(line.what, line.expected, line.found, verdict, style="" if line.holds else "bold red")
    return table
