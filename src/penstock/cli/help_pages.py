"""What `--help` says, and how it is laid out: sentences fill their lines, wherever docstrings break them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions


@contextmanager
def explaining(commands: "Iterable[App]") -> "Iterator[None]":
    """Meanwhile these commands explain themselves by their whole docstrings, not by the line that lists them."""
    listed = [(one, one.help) for one in commands if one.default_command is not None]
    for one, _ in listed:
        one.help = None
    try:
        yield
    finally:
        for one, line in listed:
            one.help = line


def screen(given: Sequence[str], commands: "Sequence[App]") -> "Console | None":
    """Where the parser is to print what this command line asks it for; None if it runs the command instead."""
    root, last = commands[0], commands[-1]
    if last.default_command is not None and not {*root.help_flags, *root.version_flags} & set(given):
        return None
    from penstock.cli.screen import Screen  # it loads what a command may not need

    return Screen()


class Flowing:
    """The parser's own layout, but for the line breaks that are in descriptions. Only help loads it."""

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        for entry in panel.entries:
            _flow(entry.description)
        _usual()(console, options, panel)

    def render_usage(self, console: "Console", options: "ConsoleOptions", usage: Any) -> None:
        _usual().render_usage(console, options, usage)

    def render_description(self, console: "Console", options: "ConsoleOptions", description: Any) -> None:
        _flow(description)
        _usual().render_description(console, options, description)


def _flow(told: Any) -> None:
    """Paragraphs stay apart; one with lines that are indented is a table, and stays as it is."""
    from cyclopts.help import InlineText
    from rich.text import Text

    if isinstance(told, InlineText) and isinstance(told.primary_renderable, Text):
        paragraphs = told.primary_renderable.plain.rstrip().split("\n\n")
        told.primary_renderable = Text(
            "\n\n".join(one if "\n " in one else " ".join(one.split()) for one in paragraphs)
        )


def _usual() -> Any:
    from cyclopts.help.formatters import DefaultFormatter

    return DefaultFormatter()
