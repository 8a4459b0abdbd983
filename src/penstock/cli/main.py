"""Where a command begins and where it ends: exit codes are in `usage`, an error is one line on stderr."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; leave with its exit code if it failed. Only a bug in Penstock ends in a traceback."""
    try:
        _open_closed_streams()
        from penstock.cli.whole_output import whole_output

        with whole_output():
            _run(arguments)
    except KeyboardInterrupt:  # also in the first moments: what takes time to load is loaded in here
        from penstock.cli.usage import INTERRUPTED

        sys.exit(INTERRUPTED)


def _open_closed_streams() -> None:
    """Whoever has closed one wants to hear nothing on it: print() would take the other, and a socket its number."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process ends


def _run(arguments: Sequence[str] | None) -> None:
    from cyclopts import CycloptsError

    from penstock.cli.complaints import complaint
    from penstock.cli.help_pages import explaining, screen
    from penstock.cli.tree import app
    from penstock.cli.usage import COULD_NOT, UNHEARD, USAGE, UsageError, code_of
    from penstock.cli.whole_output import unheard
    from penstock.errors import PenstockError

    given = sys.argv[1:] if arguments is None else arguments
    words: Sequence[str] = ()
    try:
        try:
            words, commands, _ = app.parse_commands([word for word in given if word not in app.help_flags])
            with explaining(commands):
                app(
                    given, console=screen(given, commands),
                    exit_on_error=False, print_error=False, result_action="return_none",
                )  # fmt: skip
        finally:
            sys.stdout.flush()  # here, where a reader that has left is no traceback
    except (CycloptsError, UsageError) as error:
        fail(f"{complaint(error, words)} See: {' '.join(['penstock', *words, '--help'])}", code=USAGE)
    except PenstockError as error:
        fail(one_line(error), code=code_of(error))
    except BrokenPipeError:
        # The reader of our output left, as `| head` does. Python would complain about it once more on its way out.
        unheard(sys.stdout.fileno())
        sys.exit(UNHEARD)
    except OSError as error:  # of a file, or of a disk that is full
        fail(one_line(error), code=COULD_NOT)


def one_line(error: Exception) -> str:
    """What it says; part of that may be what a stranger has written, which no terminal is to obey."""
    from penstock.cli.shown import line_of  # it loads what `--help` does not need

    return line_of(" ".join(str(error).split()))


def fail(text: str, *, code: int) -> NoReturn:
    print(f"penstock: {text}", file=sys.stderr)
    sys.exit(code)
