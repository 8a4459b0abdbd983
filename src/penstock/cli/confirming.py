"""What destroys or redelivers is only tried unless `--yes` is given."""

from typing import Annotated, NoReturn, TypeAlias

from cyclopts import Parameter

from penstock.cli.usage import UnconfirmedError

_YES = Parameter(name=["--yes", "-y"], negative=(), show_default=False)
_TRIED = "nothing is changed: it says what would be, and the exit code is 5."

Yes: TypeAlias = Annotated[bool, _YES, Parameter(help=f"Do it. Without this {_TRIED}")]
"""For an argument of a destructive command: `yes: Yes = False`."""

YesToBody: TypeAlias = Annotated[
    bool,
    _YES,
    Parameter(help=f"Give a body back that is in --body or --file. Without this {_TRIED} No editor needs it."),
]
"""The same of a command that does it without, if the user has written in an editor what is to be done."""


def only_tried(*would: str) -> NoReturn:
    """Say what the command would do, one thing per line, and end it: nothing was changed."""
    for line in would:
        print(f"Would {line}")
    raise UnconfirmedError("nothing was changed: add --yes to do it")
