"""Bodies and pairs, as they are given on the command line."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter

from penstock.cli.usage import UsageError

Given: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""The type of an argument for `text_given`: - and -1 are no options."""


def text_given(given: str) -> str:
    """The argument itself; what is in a file, for @FILE; or standard input, for -."""
    if given == "-":
        return sys.stdin.read()
    if given.startswith("@"):
        try:
            return Path(given[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{given[1:]} cannot be read: {error}.") from None
    return given


def json_given(given: str) -> Any:
    """The same, as JSON."""
    return parsed(text_given(given), given)


def parsed(text: str, source: str) -> Any:
    """As JSON; `source` says in the error where it is from."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{source if len(source) < 80 else 'the body'} is no JSON: {error}.") from None


def pairs_given(option: str, given: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, each."""
    if wrong := [one for one in given if not one.partition("=")[0] or "=" not in one]:
        raise UsageError(f"{option} is given as NAME=VALUE, not as {wrong[0]!r}.")
    return {name: value for name, _, value in (one.partition("=") for one in given)}
