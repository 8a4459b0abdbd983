"""Bodies and headers, as they are given on the command line."""

import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter, validators

from penstock.cli.usage import UsageError
from penstock.message.ids import canonical

_OPTION = re.compile(r"--?[A-Za-z][\w-]*(=.*)?", re.DOTALL)
_ENTRY_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


def _no_option(_: Any, value: str | Path | None) -> None:
    """What looks like one is a slip of the pen, not a body or a file."""
    if value is not None and _OPTION.fullmatch(str(value)):
        raise ValueError(f"there is no option {value}")


Body: TypeAlias = Annotated[str | None, Parameter(allow_leading_hyphen=True, validator=_no_option)]
"""For an argument that is a body: `body: Body = None`. -1 is one, and no option."""

File: TypeAlias = Annotated[
    Path | None, Parameter(name=["--file", "-f"], allow_leading_hyphen=True, validator=_no_option)
]
"""For an argument that is a file with a body in it: `file: File = None`; - is stdin."""

FileOrPipe: TypeAlias = Annotated[Path, Parameter(allow_leading_hyphen=True, validator=_no_option)]
"""For an argument that is a file: `file: FileOrPipe = Path("-")`; - is stdin or stdout."""

Rate: TypeAlias = Annotated[float, Parameter(validator=validators.Number(gt=0, lt=math.inf))]
"""For an argument that is so many a second: `rate: Rate | None = None`."""

Count: TypeAlias = Annotated[int, Parameter(validator=validators.Number(gte=1))]
"""For an argument that is a number of at least 1: `limit: Count = 100`."""


def uuid_given(id: str, of: str = "a message") -> str:
    """In its canonical form; `UsageError` if it is none."""
    found = canonical(id)
    if found is None:
        raise UsageError(f"{of} is known by its UUID, not by {id!r}.")
    return found


def is_entry_id(id: str) -> bool:
    return _ENTRY_ID.fullmatch(id) is not None


def id_given(id: str) -> str:
    """A message's UUID in its canonical form, or an entry id as it is; `UsageError` if it is neither."""
    found = canonical(id) or (id if is_entry_id(id) else None)
    if found is None:
        raise UsageError(f"{id!r} is neither an entry id, like 1763100000000-0, nor a message's UUID.")
    return found


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
