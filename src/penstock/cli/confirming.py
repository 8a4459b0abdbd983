"""What destroys or redelivers is only tried unless `--yes` is given."""

from typing import Annotated, NoReturn, TypeAlias

from cyclopts import Parameter

from penstock.cli.usage import UnconfirmedError

Yes: TypeAlias = Annotated[
    bool,
    Parameter(
        name=["--yes", "-y"],
        negative=(),
        show_default=False,
        help="Do it. Without this nothing is changed: it says what would be, and the exit code is 5.",
    ),
]
"""For an argument of a destructive command: `yes: Yes = False`."""


def only_tried(*would: str) -> NoReturn:
    """Say what the command would do, one thing per line, and end it: nothing was changed."""
    for line in would:
        print(f"Would {line}")
    raise UnconfirmedError("nothing was changed: add --yes to do it")
