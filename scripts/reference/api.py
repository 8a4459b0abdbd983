"""The page on the API: every public name, its signature and its docstring, read from the source."""

import ast
import copy
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

HEAD = """# The API

Made from the code by `make docs`: every public name, what it takes, and what its docstring promises. What is *made by*
something else, you do not make yourself.

"""
ROOMS = (
    "penstock",
    "penstock.errors",
    "penstock.events",
    "penstock.sync",
    "penstock.testing",
    "penstock.telemetry",
    "penstock.overview",
    "penstock.bus.journal",
    "penstock.manager",
    "penstock.agents",
    "penstock.web",
    "penstock.lake",
    "penstock.spark",
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def page() -> str:
    return HEAD + "\n".join(_room(room) for room in ROOMS).rstrip() + "\n"


def _room(room: str) -> str:
    tree = ast.parse(source_of(room))
    told = (ast.get_docstring(tree) or "").strip()
    first, _, rest = told.partition("\n\n")
    lines = [f"## {room}\n", " ".join(first.split()) + "\n"]
    if rest and room != "penstock":
        lines.append(f"```\n{rest.strip()}\n```\n")
    for name, home in public_names(room, tree).items():
        definition = _defined(home, name)
        if definition is not None:
            lines.append(_entry(name, definition))
    return "\n".join(lines)


def public_names(room: str, tree: ast.Module) -> dict[str, str]:
    """Name → the module that has it: what is in `__all__`, or imported under its own name, or else defined there."""
    homes = {one.asname or one.name: node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
             for one in node.names}  # fmt: skip
    listed = _listed(tree)
    if not listed:
        listed = [
            one.asname for node in tree.body if isinstance(node, ast.ImportFrom) for one in node.names if one.asname
        ]
    own = [node.name for node in tree.body if isinstance(node, ast.ClassDef | Function) and node.name[0] != "_"]
    return {name: homes.get(name, room) for name in listed or own if homes.get(name, room) != "penstock"}


def _listed(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return []


def _defined(home: str, name: str) -> ast.AST | None:
    """Where a name is made, through modules that only pass it on."""
    tree = ast.parse(source_of(home))
    for node in tree.body:
        if isinstance(node, ast.ClassDef | Function) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and name in [one.asname or one.name for one in node.names]:
            return _defined(node.module or "", name)
    return None


def _entry(name: str, node: ast.AST) -> str:
    lines = [f"### {name}\n"]
    if isinstance(node, Function):
        return "\n".join([*lines, f"`{_signature(node)}`\n", f"{_told(node)}\n"])
    if not isinstance(node, ast.ClassDef):
        raise TypeError(f"{name} is neither a class nor a function")
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    lines.append((f"*{bases}* · " if bases else "") + _told(node) + "\n")
    members = [*_fields(node), *_methods(node)]
    return "\n".join([*lines, *members, *([""] if members else [])])


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """Attributes of the class that have a type or a value, and what the text behind them says."""
    for place, one in enumerate(node.body):
        name = _field_name(one)
        if name is None or name.startswith("_"):
            continue
        behind = node.body[place + 1] if place + 1 < len(node.body) else None
        told = ""
        if (
            isinstance(behind, ast.Expr)
            and isinstance(behind.value, ast.Constant)
            and isinstance(behind.value.value, str)
        ):
            told = ": " + _joined(behind.value.value)
        yield f"- `{ast.unparse(one)}`{told}"


def _field_name(one: ast.stmt) -> str | None:
    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
        return one.target.id
    if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
        return one.targets[0].id
    return None


def _methods(node: ast.ClassDef) -> Iterator[str]:
    for one in node.body:
        if isinstance(one, Function) and (
            one.name[0] != "_" or (one.name == "__init__" and "Made by" not in _told(node))
        ):
            is_property = any(ast.unparse(mark).endswith("property") for mark in one.decorator_list)
            told = _told(one)
            yield f"- `{one.name if is_property else _signature(one)}`" + (f": {told}" if told else "")


def _signature(node: Function) -> str:
    arguments = copy.deepcopy(node.args)
    for group in (arguments.posonlyargs, arguments.args):
        group[:] = [one for one in group if one.arg not in ("self", "cls")]
    start = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None and node.name != "__init__" else ""
    return f"{start}{node.name}({ast.unparse(arguments)}){result}".replace("'", '"')


def _told(node: ast.ClassDef | Function) -> str:
    return _joined(ast.get_docstring(node) or "")


def _joined(text: str) -> str:
    return " ".join(text.split())


def source_of(module: str) -> str:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    return Path(spec.origin).read_text(encoding="utf-8")
