"""Every command, from the tree itself, and a table of what is to be known of each to try it.

A command that has no row fails `tests/cli/test_every_command.py`: write one.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from pathlib import Path
from string import Template
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from cyclopts import App, Argument

from penstock.cli.tree import app
from tests.support.stock import NAMES


@dataclass(frozen=True)
class Row:
    """How to have a command do something. `given` names things as `tests.support.stock` has put them on a server."""

    given: str = ""
    empty: int = 0
    """Its exit code on a server where nothing is."""

    stocked: int = 0
    """Its exit code where all that it names is there; if it has --yes, that with it."""

    asks: Literal["a server", "nobody", "as a service", "a server of its own"] = "a server"
    """Whom. What runs as a service takes signals and the exit of its process for itself: it needs one of its own."""

    acts: bool = False
    """It changes something, and has no --yes to be asked for. All others only look."""

    tidies: bool = False
    """It writes, and removes what it wrote."""

    tells: bool = False
    """It has something to show even if nothing is there."""

    needs: Literal["nothing", "Spark"] = "nothing"
    """Spark: beyond the first look at its server it would start a JVM."""


RULES = """
topics = ["orders"]
[[alert]]
name = "unpaid"
after = "Order"
expect = "Paid"
within = "1m"
by = "key"
"""
"""What a file $rules may hold."""

_SPARK = "--lake $lake --name n --master local[2]"

ROWS: Mapping[str, Row] = {
    "up": Row(asks="a server of its own"),
    "demo": Row(asks="a server of its own"),
    "run": Row("tests.support.trial:app", asks="as a service"),
    "serve": Row("tests.support.trial:app --port 0", asks="as a service"),
    "worker": Row("0", asks="as a service"),
    "publish": Row("orders 1", acts=True),
    "tail": Row("orders", empty=3),
    "get": Row("$message", empty=3),
    "trace": Row("$message", empty=3),
    "ls": Row(),
    "top": Row("--once --every 10ms"),
    "bench": Row("--messages 5000 --rounds 1", tidies=True, tells=True),
    "doctor": Row("--no-machine", empty=1, stocked=1, tells=True),
    "why": Row("orders", empty=3, stocked=1),
    "check": Row(stocked=1),
    "completion": Row("bash", asks="nobody", tells=True),
    "topic info": Row("orders", empty=3),
    "topic trim": Row("quiet --max 1", empty=3),
    "topic export": Row("orders", empty=3),
    "topic import": Row("orders", acts=True),
    "topic rm": Row("quiet", empty=3),
    "topic adopt": Row("orders", empty=3, acts=True),
    "group ls": Row("orders", empty=3),
    "group info": Row("orders billing", empty=3),
    "group pending": Row("orders billing", empty=3),
    "group reset": Row("orders billing --to earliest", empty=3),
    "group claim": Row("orders billing --idle 0s", empty=3),
    "group ack": Row("orders billing $held", empty=3),
    "group retry": Row("returns billing", empty=3),
    "group pause": Row("orders billing", empty=3, acts=True),
    "group resume": Row("orders billing", empty=3, acts=True),
    "group rm": Row("quiet readers", empty=3),
    "cursor ls": Row("orders", empty=3),
    "cursor reset": Row("orders reader --to earliest", empty=3),
    "cursor rm": Row("orders reader", empty=3),
    "dead ls": Row(),
    "dead show": Row("orders $dead", empty=3),
    "dead replay": Row("orders $dead", empty=3),
    "dead edit": Row("orders $dead --body 1", empty=3),
    "dead purge": Row("orders $dead", empty=3),
    "job ls": Row("images", empty=3),
    "job show": Row("images $job", empty=3),
    "job stats": Row("images", empty=3),
    "job enqueue": Row("images 1", acts=True),
    "job result": Row("images $job --timeout 10ms", empty=3, stocked=1),
    "job cancel": Row("images $job", empty=3),
    "job retry": Row("images $dead_job", empty=3),
    "job run": Row("images $later", empty=3, acts=True),
    "job priority": Row("images $job high", empty=3, acts=True),
    "job pause": Row("images", empty=3, acts=True),
    "job resume": Row("images", empty=3, acts=True),
    "job drain": Row("images --timeout 10ms", empty=3, stocked=1),
    "job migrate": Row("images", acts=True, tells=True),
    "cron ls": Row("chores", empty=3),
    "cron pause": Row("chores clean", empty=3, acts=True),
    "cron resume": Row("chores clean", empty=3, acts=True),
    "cron rm": Row("chores clean", empty=3),
    "context ls": Row(asks="nobody"),
    "context add": Row("here redis://h", asks="nobody"),
    "context use": Row("here", asks="nobody", empty=3),
    "context rm": Row("here", asks="nobody", empty=3),
    "spark doctor": Row(asks="nobody", needs="Spark"),
    "lake query": Row("'SELECT id FROM raw' --lake $lake", asks="nobody"),
    "lake tables": Row("--lake $lake", asks="nobody"),
    "lake files": Row("raw --lake $lake", asks="nobody"),
    "lake schema": Row("orders --lake $lake", asks="nobody", empty=3),
    "lake compact": Row("--lake $lake", asks="nobody", tells=True),
    "lake drop": Row("--lake $lake --older-than 1d", asks="nobody", tells=True),
    "lake failures": Row("--lake $lake", asks="nobody"),
    "lake replay": Row("--lake $lake --id again", tells=True),
    "pipeline archive": Row(f"orders {_SPARK}", needs="Spark"),
    "pipeline metrics": Row(f"orders {_SPARK}", needs="Spark"),
    "pipeline alerts": Row(f"$rules --to alerts {_SPARK}", needs="Spark"),
    "pipeline run": Row("tests.support.trial:copy --home $lake --once --master local[2]", needs="Spark"),
}  # positional arguments come first


@dataclass(frozen=True)
class Leaf:
    """A command that does something, as opposed to one that only has others beneath it."""

    name: str
    app: App

    @property
    def row(self) -> Row:
        return ROWS.get(self.name, Row())  # that it has none fails one test, not all

    @property
    def words(self) -> list[str]:
        return self.name.split()

    def command(self, **places: str | Path) -> list[str]:
        """It, with the arguments of its row; `places` are what these name beside what is in stock."""
        names = NAMES | {name: str(place) for name, place in places.items()}
        return [*self.words, *(Template(word).substitute(names) for word in shlex.split(self.row.given))]

    @property
    def arguments(self) -> list[Argument]:
        """All that can be given to it, one by one: no dataclass that holds others."""
        found = self.app.assemble_argument_collection(parse_docstring=True)
        return [one for one in found if one.names != ("*",)]

    def has(self, option: str) -> bool:
        return any(option in one.names for one in self.arguments)


@cache
def leaves() -> dict[str, Leaf]:
    """All of them, hidden ones too, each under its first name."""
    return {leaf.name: leaf for leaf in _beneath(app, ())}


def _beneath(tree: App, words: tuple[str, ...]) -> Iterator[Leaf]:
    for name in tree:
        if name.startswith("-") or tree[name].name[0] != name:  # --help and --version; an alias
            continue
        if tree[name].default_command is None:
            yield from _beneath(tree[name], (*words, name))
        else:
            yield Leaf(" ".join((*words, name)), tree[name])


_WRONG: Mapping[Any, tuple[str, ...]] = {
    bool: ("maybe",),
    int: ("x", "-1"),
    float: ("x", "nan"),
    timedelta: ("10 parsecs",),
    datetime: ("soon",),
}
_WRONG_BY_NAME = {
    "ID": "no-id",
    "IDS": "no-id",
    "--id": "no-id",
    "--ids": "no-id",
    "--dialect": "nonsense",
    "--url": "http://h",
    "--header": "no-value",
    "MODULE:APP": "no-app",
    "MODULE:FLOW": "no-flow",
}


def wrong_values(argument: Argument) -> tuple[str, ...]:
    """What an argument cannot be, by its type, or by its name if it is a text of some form."""
    for name in argument.names:
        if name in _WRONG_BY_NAME:
            return (_WRONG_BY_NAME[name],)
    kinds = _kinds(argument.hint)
    if any(get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, Enum)) for kind in kinds):
        return ("nonsense",)
    found = [_WRONG[kind] for kind in kinds if kind in _WRONG]
    return found[0] if found else ()


def _kinds(hint: Any) -> list[Any]:
    """The types that a value may be of, without None, and of many values that of each."""
    if get_origin(hint) in (None, Literal):
        return [] if hint in (NoneType, ...) else [hint]
    return [kind for part in get_args(hint) for kind in _kinds(part)]
