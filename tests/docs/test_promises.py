"""The documentation may only name tests that exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.pages import PAGES, ROOT, name_of

ROWS = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", (ROOT / "docs" / "promises.md").read_text(), re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py(?:::[\w:]+)?)`")


def functions_in(file: Path) -> set[str]:
    """Test functions, and those in a class as Class::function."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{inner.name}" for inner in node.body if hasattr(inner, "name")} | {node.name}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):  # hypothesis' TestX = Machine.TestCase
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def test_there_are_fourteen_promises() -> None:
    assert [int(number) for number, _, _ in ROWS] == list(range(1, 15))


@pytest.mark.parametrize(("number", "tests"), [(number, tests) for number, _, tests in ROWS])
def test_a_promise_names_tests_or_says_that_it_is_not_built(number: str, tests: str) -> None:
    ids = NAMED.findall(tests)
    assert ids or "not built yet" in tests, f"promise {number} names no test and does not say that it is not built"


@pytest.mark.parametrize("page", [page for page in PAGES if NAMED.search(page.read_text())], ids=name_of)
def test_the_tests_that_a_page_names_exist(page: Path) -> None:
    for test in NAMED.findall(page.read_text()):
        file, _, function = test.partition("::")
        assert (ROOT / file).is_file(), test
        assert not function or function in functions_in(ROOT / file), test


def test_every_row_of_the_failure_table_names_what_shows_it() -> None:
    rows = re.findall(r"^\| (?!what |---)(.+) \|$", (ROOT / "docs/explanation/failures.md").read_text(), re.MULTILINE)
    assert len(rows) > 25
    assert not [row for row in rows if NAMED.search(row.rpartition("|")[2]) is None]
