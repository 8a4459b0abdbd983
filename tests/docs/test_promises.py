"""The documentation may only name tests and files that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
ROWS = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", (ROOT / "docs" / "promises.md").read_text(), re.MULTILINE)


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
def test_a_promise_names_tests_that_exist_or_says_that_it_is_not_built(number: str, tests: str) -> None:
    ids = re.findall(r"`(tests/[^`]+)`", tests)
    assert ids or "not built yet" in tests, f"promise {number} names no test and does not say that it is not built"
    for test in ids:
        file, _, function = test.partition("::")
        assert (ROOT / file).is_file(), test
        assert not function or function in functions_in(ROOT / file), test


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert not [target for target in targets if not (page.parent / target).exists()]
