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
    text = files("penstock.backend.redis").joinpath("lua", f"{name}.lua").read_text()
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
