"""The Lua scripts, each in its own file with its keys, arguments, result and invariant at the head."""

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Script(NamedTuple):
    text: str
    sha: str


@cache
def load(name: str) -> Script:
    """The script in `lua/<name>.lua`."""
    return _script(files("penstock.backend.redis").joinpath("lua", f"{name}.lua").read_text())


@cache
def load_to_look(name: str) -> Script:
    """The same, for a call that writes nothing: a replica runs it, a server that is full, or one for a user who may
    not write; and any write in it is refused."""
    _, _, text = load(name).text.partition("\n")
    return _script(f"#!lua flags=no-writes\n{text}")


def _script(text: str) -> Script:
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
