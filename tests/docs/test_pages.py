"""The documentation as a whole: index and menu lead to every page, and every link and anchor leads somewhere."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.pages import PAGES, ROOT, anchors_of, blocks_of, links_of, name_of
from tests.support.shell import matches

MENU = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
EACH = pytest.mark.parametrize("page", PAGES, ids=name_of)


def test_the_index_leads_to_every_page_and_so_does_the_menu() -> None:
    docs = ROOT / "docs"
    pages = {page.relative_to(docs).as_posix() for page in PAGES if page.is_relative_to(docs)} - {"index.md"}
    notes = {page for page in pages if page.startswith("decisions/0")}
    assert sorted(pages - notes - set(links_of(docs / "index.md"))) == []
    assert sorted(MENU) == sorted((pages - notes) | {"index.md"})
    assert sorted({Path(note).name for note in notes} - set(links_of(docs / "decisions" / "README.md"))) == []


@EACH
def test_links_lead_somewhere(page: Path) -> None:
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{name_of(page)} leads to {link}, which is not there"
        if anchor and target.suffix == ".md":
            assert anchor in anchors_of(target), f"{name_of(page)} leads to {link}, which has no such heading"


@EACH
def test_a_page_has_one_title(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert len(re.findall(r"^# ", prose, re.MULTILINE)) == 1


@EACH
def test_python_that_is_shown_can_be_read(page: Path) -> None:
    for block in blocks_of(page):
        if block.language == "python":
            compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_what_is_expected_of_a_command_may_leave_things_out_but_not_differ() -> None:
    assert matches("id …\n2 more\n", "id 17  \n2 more")
    assert not matches("id …\n2 more\n", "id 17\n3 more")
    assert not matches("2 more\n", "12 more")
