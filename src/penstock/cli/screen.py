"""Stdout, as rich writes to it."""

from rich.console import Console

from penstock.cli.usage import UNHEARD


class Screen(Console):
    """Ends the command if its reader has left, as `| head` does."""

    def on_broken_pipe(self) -> None:
        try:
            super().on_broken_pipe()  # which also sees to it that nobody tries to write once more
        except SystemExit:
            raise SystemExit(UNHEARD) from None
