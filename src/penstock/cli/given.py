"""Bodies and headers, as they are given on the command line."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter

from penstock.cli.usage import UsageError

Body: TypeAlias = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
"""For an argument that is a body: `body: Body = None`. -1 is one, and no option."""

File: TypeAlias = Annotated[Path | None, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)]
"""For an argument that is a file with a body in it: `file: File = None`; - is stdin."""


def body_given(body: str | None, file: Path | None) -> bytes | None:
    """The one that was given, as it is; None if none was."""
    if body is not None and file is not None:
        raise UsageError("the body is given twice, as an argument and as --file: give one of them.")
    if body is not None:
        return body.encode(errors="surrogateescape")
    if file is None:
        return None
    try:
        return stdin().read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from error


def stdin() -> IO[bytes]:
    """What comes to this command; `UsageError` if it was closed by whoever started it."""
    if sys.stdin is None:
        raise UsageError("stdin is closed, and nothing else was given to read from.")
    return sys.stdin.buffer


def json_of(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise UsageError(f"the body cannot be read as JSON: {error}.") from error


def headers_given(headers: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, each."""
    for header in headers:
        if "=" not in header:
            raise UsageError(f"a header is NAME=VALUE, not {header!r}.")
    return dict(header.split("=", 1) for header in headers)
