"""The Lua scripts, each in its own file with its keys, arguments, result and invariant at the head.

What several of them need is in `lua/shared/`, a function in each file. It takes the place of the line that names it:
`-- Uses: name, name`.
"""

import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_USES = re.compile(r"^-- Uses: (.+)\n", re.MULTILINE)


class Script(NamedTuple):
    text: str
    sha: str


@cache
def load(name: str) -> Script:
    """The script in `lua/<name>.lua`."""
    return _script(_USES.sub(lambda line: "".join(_read(f"shared/{one}") for one in line[1].split(", ")), _read(name)))


@cache
def load_to_look(name: str) -> Script:
    """The same, for a call that writes nothing: a replica runs it, a server that is full, or one for a user who may
    not write; and any write in it is refused."""
    _, _, text = load(name).text.partition("\n")
    return _script(f"#!lua flags=no-writes\n{text}")


def _read(path: str) -> str:
    return files("penstock.backend.redis").joinpath(f"lua/{path}.lua").read_text()


def _script(text: str) -> Script:
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
