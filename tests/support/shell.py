"""A shell as the pages of the documentation need it: `penstock`, `python` and `redis-cli`, on the server of a test.

Commands run within the test's own process, so that a page of twenty takes no twenty seconds. What goes on beside the
others (`penstock run … &`) is a process of its own until `kill %1`.
"""

import ast
import asyncio
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from penstock import Penstock
from penstock.cli.main import main
from penstock.cli.tree import app as command_line
from penstock.cli.usage import COULD_NOT, UNCONFIRMED
from penstock.overview import GroupView, Overview
from tests.support.pages import Block

DIAGNOSING = ("check", "doctor", "why")
PENSTOCK = [sys.executable, "-c", "from penstock.cli.main import main; main()"]


class Shell:
    """In a directory of its own. Leaving it ends what was left running."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str], url: str) -> None:
        self.directory = directory
        self.capsys = capsys
        self.url = url
        self.socket = url.removeprefix("unix://").partition("?")[0]
        self.beside: list[tuple[subprocess.Popen[str], str]] = []
        """What goes on, each with what it had printed when it said that it runs."""

    def run(self, line: str) -> str:
        """What the command prints; fails unless it ends with exit code 0."""
        words = shlex.split(line, comments=True)
        if words[-1] == "&":
            self.beside.append(self._start(words[:-1]))
            return ""
        if words[0] == "kill":
            asyncio.run(self._all_settled())
            return self._end(*self.beside.pop(int(words[1].removeprefix("%")) - 1))
        if words[:3] == ["python", "-m", "pytest"]:
            return self._spawned([sys.executable, *words[1:]])
        if words[0] == "redis-cli":
            return self._spawned(["redis-cli", "-s", self.socket, *words[1:]])
        if words[:2] == ["penstock", "pipeline"]:
            words += ["--url", self.url]  # Spark's processes, if they are there already, know another $PENSTOCK_URL
        if words[0] in ("pip", "cd", "make", "export", ".") or words[:3] == ["python3", "-m", "venv"]:
            return ""  # what the environment of the tests has done already
        self.capsys.readouterr()
        self._within(words)
        return self.capsys.readouterr().out

    def block(self, block: Block) -> None:
        """Run a block of a page.

        - `console` has commands behind `$ `, and what they print.
        - `python` is a program, and prints what the block behind it says. If it begins with `# name.py` it is kept as
          that file, for the commands that follow. If it begins with `# before`, it is what somebody has who does not
          use Penstock yet, and what it needs may not be installed: it is only compiled.
        - `ini` and `yaml` are for programs that are not here: their `penstock run …` is one that Penstock takes.
        """
        if block.language == "console":
            self.console(block.text)
            return
        if block.language in ("ini", "yaml"):
            _check_command(block)
            return
        assert block.language == "python", f"{block}: nothing here runs {block.language}"
        compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if block.text.startswith("# before"):
            return
        if kept := re.match(r"# (\w+\.py)\n", block.text):
            (self.directory / kept[1]).write_text(block.text)
            return
        printed = self.program(block.text)
        assert block.output is None or matches(block.output, printed), f"{block} prints\n{printed}"

    def program(self, code: str, name: str = "program.py") -> str:
        """What a program prints that is run as `python name`."""
        (self.directory / name).write_text(code)
        return self.run(f"python {name}")

    def console(self, text: str) -> None:
        """Run each line behind a `$ `; what is written under one is what it must print, with `…` for anything."""
        for command in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            line, _, expected = command.replace("\\\n", " ").partition("\n")
            found = self.run(line)
            if expected:
                assert matches(expected, found), f"$ {line}\nprints\n{found}\nand not\n{expected}"

    def _within(self, words: list[str]) -> None:
        program, *arguments = words
        if program == "penstock":
            try:
                main(arguments)
            except SystemExit as leaving:
                # A page may show what would be lost, and what is wrong.
                if leaving.code != UNCONFIRMED and not (arguments[0] in DIAGNOSING and leaving.code == COULD_NOT):
                    raise
            return
        assert program == "python", words
        before, sys.argv = sys.argv, arguments
        try:
            if arguments[0] == "-m":
                sys.argv = arguments[1:]
                runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(str(self.directory / arguments[0]), run_name="__main__")
        finally:
            sys.argv = before

    def _spawned(self, words: list[str]) -> str:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _start(self, words: list[str]) -> "tuple[subprocess.Popen[str], str]":
        command = [*PENSTOCK, *words[1:]] if words[0] == "penstock" else [sys.executable, *words[1:]]
        process = subprocess.Popen(
            command, cwd=self.directory, env=os.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        printed = ""
        while "Ctrl-C to stop." not in (line := process.stdout.readline()):  # handlers may have been faster
            assert line, f"{words} ended before it had said that it runs"
            printed += line
        return process, printed

    async def _all_settled(self) -> None:
        """As whoever reads the page sees that nothing more comes before they go on."""
        async with Penstock.connect(self.url) as app, asyncio.timeout(20):
            while any(_has_work(group) for topic in await Overview(app.backend).topics() for group in topic.groups):
                await asyncio.sleep(0.02)

    def _end(self, process: "subprocess.Popen[str]", printed: str) -> str:
        process.terminate()
        printed += process.communicate(timeout=30)[0]
        assert process.returncode == 0, printed
        return printed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process, _ in self.beside:
            process.kill()
            process.communicate(timeout=30)


def _check_command(block: Block) -> None:
    line = next(line for line in block.text.splitlines() if "penstock" in line and "run" in line)
    words = re.findall(r"[^\s\[\]\",]+", line)
    command, _, _ = command_line.parse_args(words[words.index("run") :], exit_on_error=False)
    assert command.__name__ == "run", f"{block}: {line}"


def _has_work(group: GroupView) -> bool:
    return bool(group.lag.messages or group.pending or group.parked or group.ready)


def matches(expected: str, found: str) -> bool:
    """Whether it is what was expected, where `…` stands for anything, and trailing blanks for nothing."""
    pattern = ".*?".join(re.escape(part) for part in _plain(expected).split("…"))
    return re.fullmatch(pattern, _plain(found), re.DOTALL) is not None


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
