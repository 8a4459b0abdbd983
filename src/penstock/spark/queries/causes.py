"""Why a query failed, in the words of whoever raised it: Spark wraps them into pages of Java."""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import penstock
from penstock import errors
from penstock.errors import LakeError, PenstockError

_TRACE = "Traceback (most recent call last):"
_RAISED = re.compile(r"(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?")
_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_CAUSED = re.compile(r"^\s*(?:Caused by|Suppressed): (.+)$", re.MULTILINE)
_CALLING = "An error occurred while calling "
_WRAPPING = re.compile(r"^(: |\[STREAM_FAILED\]|Query \[id = [^\]]*\] terminated with exception:|([a-z]\w*\.)+)\s*")
_LIBRARIES = ("/pyspark/", "/site-packages/", "/lib/python", f"{Path(penstock.__file__).parent}/", "<")
_LONGEST = 1000


@dataclass(frozen=True)
class Cause:
    """What was raised, and where in the user's own code, if that is known."""

    kind: str
    text: str
    where: str = ""

    def __str__(self) -> str:
        said = f"{self.kind}: {self.text}" if self.kind and self.text else self.kind or self.text
        return said[:_LONGEST] + (f" ({self.where})" if self.where else "")


def told(error: BaseException, doing: str) -> PenstockError:
    """The error as one of Penstock's, in one line: `doing` says what could not be done, where we do not know better."""
    if isinstance(error, PenstockError):
        return error
    cause = cause_of(error)
    kind = getattr(errors, cause.kind, None)
    # One that Penstock raised in another process, of which only the text came back.
    if isinstance(kind, type) and issubclass(kind, PenstockError) and kind.__init__ is Exception.__init__:
        return kind(cause.text)
    return LakeError(f"{doing}: {cause}")


@contextmanager
def telling(doing: str) -> Iterator[None]:
    """Errors of Spark and of the operating system leave as errors of Penstock: see `told`."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (OSError, PySparkException, Py4JError) as error:
        raise told(error, doing) from error


def cause_of(error: BaseException) -> Cause:
    """The error that Python raised last, wherever Spark has put it; what Spark says where there is none."""
    text = "\n".join(_texts(error))
    if _TRACE in text:
        return _last_raised(text.rpartition(_TRACE)[2].splitlines())
    where = next(filter(None, map(_place, reversed(traceback.format_tb(error.__traceback__)))), "")
    if type(error).__module__.startswith(("pyspark.", "py4j.")):
        return Cause("", _said_by_spark(text), where)
    return Cause(type(error).__name__, " ".join(text.split()), where)


def _texts(error: BaseException) -> Iterator[str]:
    """All that Spark knows of it, the causes that the JVM has kept too."""
    yield str(error)
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        yield f"Caused by: {java.toString()}"
        java = java.getCause()


def _last_raised(lines: list[str]) -> Cause:
    """The lines behind the head of a traceback: frames are indented, and what was raised is not."""
    where = ""
    for line in filter(str.strip, lines):
        where = _place(line) or where
        if not line[0].isspace() and (raised := _RAISED.fullmatch(line)):
            return Cause(raised["kind"].rpartition(".")[2], raised["text"] or "", where)
    return Cause("", " ".join(lines[-1].split()) if lines else "", where)


def _place(line: str) -> str:
    """Where a line of a traceback is, if that is in the user's own code."""
    frame = _FRAME.match(line)
    if frame is None or any(part in frame["file"] for part in _LIBRARIES):
        return ""
    return f"{frame['file']}, line {frame['line']}, in {frame['function']}"


def _said_by_spark(text: str) -> str:
    """The innermost cause that Java names, else the first line, less what is the same for every query."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = _CAUSED.findall(text)
    said = causes[-1] if causes else next((line for line in lines if not line.startswith(_CALLING)), "no reason given")
    while (rest := _WRAPPING.sub("", said)) != said:
        said = rest
    return said.strip()
