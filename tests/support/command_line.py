"""The `penstock` command in this process: as a shell sees it, but for the time that a new interpreter takes."""

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO
from unittest import mock

from penstock.cli.main import main


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What it printed, as ndjson."""
        return [json.loads(line) for line in self.out.splitlines()]


class CommandLine:
    """Runs commands for a server, `$PENSTOCK_URL`, with a configuration directory of its own."""

    def __init__(self, url: str | None, config: Path) -> None:
        self.url = url
        self.config = config

    def __call__(
        self, *arguments: str, code: int | None = 0, stdin: str | None = "", terminal: bool = False, columns: int = 160
    ) -> Done:
        """Run a command; it must end with that exit code, or, if that is None, with any.

        `terminal`: its stdout says that it is one, `columns` wide. Without `stdin` it is closed.
        """
        out, err = _Stream(terminal), _Stream(terminal=False)
        with self._environment(columns), _streams(stdin, out, err):
            ended = _ended(arguments)
        done = Done(ended, out.written(), err.written())
        assert code in (None, done.code), (arguments, done)
        return done

    def unheard(self, *arguments: str) -> Done:
        """How it ends if its stdout is a pipe whose reader has left. What it leaves in a buffer is written at the end,
        as Python does, which would complain."""
        reading, writing = os.pipe()
        os.close(reading)
        err = _Stream(terminal=False)
        with open(writing, "w", encoding="utf-8") as out, self._environment(), _streams("", out, err):
            ended = _ended(arguments)
            out.flush()
        return Done(ended, "", err.written())

    def refused(self, *arguments: str, code: int, stdin: str | None = "") -> str:
        """The one line on stderr of a command that must fail and print nothing else."""
        done = self(*arguments, code=code, stdin=stdin)
        assert done.err.count("\n") == 1, done.err
        assert done.err.startswith("penstock: ")
        return done.err

    @contextmanager
    def _environment(self, columns: int = 160) -> Iterator[None]:
        kept = {name: value for name, value in os.environ.items() if name != "PENSTOCK_URL"}
        own = {"XDG_CONFIG_HOME": str(self.config), "COLUMNS": str(columns), "LINES": "50", "TERM": "dumb"}
        with mock.patch.dict(
            os.environ, kept | own | ({} if self.url is None else {"PENSTOCK_URL": self.url}), clear=True
        ):
            yield


def run(arguments: str) -> None:
    """The command with these arguments, a list in JSON, as all that this process does."""
    main(json.loads(arguments))


class _Stream(io.TextIOWrapper):
    def __init__(self, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="", write_through=True)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def written(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined, no-any-return]


def _ended(arguments: Sequence[str]) -> int:
    try:
        main(arguments)
    except SystemExit as leaving:
        return int(leaving.code or 0)
    return 0


@contextmanager
def _streams(stdin: str | None, out: TextIO, err: TextIO) -> Iterator[None]:
    given = None if stdin is None else io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    with mock.patch.multiple(sys, stdin=given, stdout=out, stderr=err):
        yield
