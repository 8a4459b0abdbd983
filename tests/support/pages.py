"""Pages of Markdown as the tests of the documentation see them: their blocks of code, headings and links."""

import ast
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), ROOT / "examples" / "README.md", *(ROOT / "docs").rglob("*.md")])
_FENCED = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the block right behind it if that has no language: what the code prints."""

    page: str
    line: int
    language: str
    text: str
    output: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    """Those with a language, in the order of the page."""
    text = page.read_text()
    found = list(_FENCED.finditer(text))
    return [
        Block(name_of(page), text.count("\n", 0, one.start()) + 2, one["language"], one["text"], _output(text, one))
        for one in found
        if one["language"]
    ]


def anchors_of(page: Path) -> set[str]:
    """What `#...` may name on the page, by GitHub's rule."""
    prose = _FENCED.sub("", page.read_text())
    titles = re.findall(r"^#{1,6} (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def links_of(page: Path) -> list[str]:
    """Where its links lead that stay within the repository."""
    return re.findall(r"\]\((?!https?:)([^)\s]+)\)", _FENCED.sub("", page.read_text()))


def told(name: str) -> str:
    """What the head of an example says that it prints."""
    head = ast.get_docstring(ast.parse((ROOT / "examples" / f"{name}.py").read_text())) or ""
    printed = re.search(r"^It prints:\n\n((?: {4}.*\n?)+)", head, re.MULTILINE)
    assert printed is not None, f"the head of examples/{name}.py does not say what it prints"
    return textwrap.dedent(printed[1]).rstrip("\n")


def _output(text: str, code: "re.Match[str]") -> str | None:
    behind = re.compile(r"\n\n```\n(.*?)^```$", re.DOTALL | re.MULTILINE).match(text, code.end())
    return behind[1] if behind is not None else None
