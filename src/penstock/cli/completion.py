"""`penstock completion`: what a shell needs to complete the command line."""

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the script by which a shell completes commands and options of penstock.

    Where it belongs is in the command's help.

    Parameters
    ----------
    shell
        The shell that is to complete.
    """
    from penstock.cli.main import app  # here: it names this module

    print(app.generate_completion(shell=shell))
