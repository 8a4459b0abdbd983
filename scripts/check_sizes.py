"""Fails when a file or a function has grown past the point where one reads it in one go.

Aim far below: files of 80 to 250 lines, functions of 5 to 25. These are the ceilings.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 400
FUNCTION_LINES = 60
FOLDERS = ("src", "scripts", "benchmarks")
KINDS = {".py", ".lua", ".sh", ""}


def problems(root: Path) -> Iterator[str]:
    """One line for each file or function over its ceiling."""
    for file in sorted(file for folder in FOLDERS for file in (root / folder).rglob("*")):
        if file.suffix not in KINDS or not file.is_file() or "__pycache__" in file.parts:
            continue
        text = file.read_text(encoding="utf-8")
        name = file.relative_to(root)
        if (lines := text.count("\n")) > FILE_LINES:
            yield f"{name}: {lines} lines, at most {FILE_LINES}"
        if file.suffix == ".py":
            yield from (f"{name}:{where}" for where in long_functions(text))


def long_functions(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{node.lineno}: {node.name}() has {lines} lines, at most {FUNCTION_LINES}"


if __name__ == "__main__":
    found = list(problems(Path(__file__).resolve().parent.parent))
    print("\n".join(found) if found else "sizes: every file and function is within its ceiling")
    sys.exit(bool(found))
