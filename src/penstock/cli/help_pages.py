"""How `--help` is laid out: sentences fill their lines, wherever the docstrings that they come from break them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions


class Flowing:
    """The parser's own layout, but for the line breaks that are in descriptions. Only help loads it."""

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        from cyclopts.help import InlineText
        from rich.text import Text

        for entry in panel.entries:
            told = entry.description
            if isinstance(told, InlineText) and isinstance(told.primary_renderable, Text):
                told.primary_renderable = Text(" ".join(told.primary_renderable.plain.split()))
        _usual()(console, options, panel)

    def render_usage(self, console: "Console", options: "ConsoleOptions", usage: Any) -> None:
        _usual().render_usage(console, options, usage)

    def render_description(self, console: "Console", options: "ConsoleOptions", description: Any) -> None:
        _usual().render_description(console, options, description)


def _usual() -> Any:
    from cyclopts.help.formatters import DefaultFormatter

    return DefaultFormatter()
