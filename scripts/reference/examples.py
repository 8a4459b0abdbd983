"""The list of examples, from the first lines of their docstrings."""

import ast
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HEAD = """# Examples

Made from their docstrings by `make docs`. Each is run from the root of the repository, as `python -m examples.<name>`,
and has a server of its own. Its docstring says what it prints, or what to do, and a test runs it.

"""


def page() -> str:
    rows = "".join(f"| [{name}]({file.relative_to(EXAMPLES).as_posix()}) | {_told(file)} |\n" for name, file in _each())
    return f"{HEAD}| example | what it shows |\n|---|---|\n{rows}"


def _each() -> "list[tuple[str, Path]]":
    """Name → the file that is run, in the order of the names."""
    found = {file.stem: file for file in EXAMPLES.glob("*.py") if file.stem != "__init__"}
    found |= {file.parent.name: file for file in EXAMPLES.glob("*/__main__.py")}
    return sorted(found.items())


def _told(file: Path) -> str:
    head = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(head.partition("\n\n")[0].split())
