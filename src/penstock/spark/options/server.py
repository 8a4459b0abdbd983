"""Where the server is, and how any option is read from its text.

An error names the option and what it accepts. What was given to an option of the server is never repeated: it may be
a password, or hold one.
"""

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import ConfigurationError
from penstock.spark.options import kinds

SERVER = dict.fromkeys(("url", "urlEnv", "urlFile", "username", "passwordEnv", "passwordFile"), kinds.TEXT)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServerOptions:
    """Where the server is, not yet looked up. Printing it shows nothing of what was given."""

    url: str | None = None
    url_env: str | None = None
    url_file: str | None = None
    username: str | None = None
    password_env: str | None = None
    password_file: str | None = None

    def __post_init__(self) -> None:
        at_most_one(self, "url", "url_env", "url_file")
        at_most_one(self, "password_env", "password_file")
        if self.username and not (self.password_env or self.password_file):
            raise ConfigurationError("option username needs a password: name it with passwordEnv or passwordFile")


def read(
    options: Mapping[str, str], table: Mapping[str, kinds.Kind], side: str, ignored: Collection[str] = ()
) -> dict[str, Any]:
    names = {name.lower(): name for name in table}
    values: dict[str, Any] = {}
    for given, text in options.items():
        if given.lower() in ignored or given.startswith("__"):
            continue
        name = names.get(given.lower())
        if name is None:
            raise unknown(given, table, side)
        values[snake(name)] = _value(name, text, table[name])
    server = {snake(name): values.pop(snake(name), None) for name in SERVER}
    return values | {"server": ServerOptions(**server)}


def _value(name: str, text: str, kind: kinds.Kind) -> Any:
    try:
        return kind.read(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"option {name}: {error}") from None
    except (ValueError, KeyError, re.error, OverflowError):
        shown = "" if name in SERVER else f"={text!r}"
    raise ConfigurationError(f"option {name}{shown} cannot be used: it must be {kind.accepted}")


def unknown(given: str, table: Mapping[str, kinds.Kind], side: str) -> ConfigurationError:
    if given.lower() == "path":
        return ConfigurationError(f"the penstock {side} takes no path: name the stream with the option topic")
    lower = {name.lower(): name for name in table}
    close = difflib.get_close_matches(given.lower(), lower, 1)
    guess = f"did you mean {lower[close[0]]}? " if close else ""
    return ConfigurationError(f"the penstock {side} has no option {given!r}: {guess}it knows {', '.join(table)}")


def at_most_one(options: object, *names: str) -> None:
    given = [camel(name) for name in names if getattr(options, name)]
    if len(given) > 1:
        raise ConfigurationError(f"options {' and '.join(given)} exclude each other: give one")


def snake(name: str) -> str:
    return re.sub("[A-Z]", lambda found: "_" + found[0].lower(), name)


def camel(name: str) -> str:
    return re.sub("_(.)", lambda found: found[1].upper(), name)
