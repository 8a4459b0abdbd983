"""The picture of the demo: it shows what the demo shows today, and needs nothing from elsewhere."""

import io
import re
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console

from penstock.cli.demo.archiving import LakeCounts
from penstock.cli.demo.books import Books
from penstock.cli.demo.reconciliation import reconcile
from penstock.cli.demo.view import Showing, View

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "demo.svg"


def test_the_picture_has_every_line_of_the_reckoning_and_all_of_them_hold() -> None:
    """Else it is out of date: `make picture`."""
    text = "\n".join(ElementTree.fromstring(PICTURE.read_text()).itertext()).replace("\xa0", " ")
    books = Books(wanted=1, connections=1)
    lines = reconcile(books, {"billing": 0, "shipping": 0}, LakeCounts(0, 0, 0, 0, 0))
    assert [line.what for line in lines if line.what not in text] == []
    assert text.count("✓") == len(lines)
    assert "✗" not in text
    assert "It does: nothing was lost" in text


def test_the_picture_fetches_nothing() -> None:
    svg = PICTURE.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert re.findall(r"https?:|@import|url\((?!#)", svg) == []


def test_how_far_everything_is_fits_a_terminal_of_80_columns() -> None:
    books = Books(wanted=100_000, connections=2, retries=10_000)
    books.published = books.followed = books.changes = books.seen = ["1-0"] * 100_000
    books.handled.update({"billing": 99_000, "shipping": 99_000})
    books.given_up.update({"billing": 1_000, "shipping": 1_000})
    screen = io.StringIO()
    Console(file=screen, width=80).print(View(Console(), books, Showing.NOT).picture())
    first, *rows, last = screen.getvalue().splitlines()
    assert ("A small shop" in first, set(last.strip())) == (True, {"─"})
    names = ["orders", "billing", "shipping", "stock", "follower", "parcels", "parcels", "parcels"]
    assert [row.split()[0] for row in rows] == names
    assert "99,000 handled, 10,000 retries, 1,000 dead" in rows[1]
