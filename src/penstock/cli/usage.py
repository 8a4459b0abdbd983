"""How a command ends, for the shell, and what it raises to end so. `penstock --help` has the table below."""

from penstock.errors import (
    CannotListenError,
    ConfigurationError,
    CursorNotFoundError,
    GroupMissingError,
    JobNotFoundError,
    LakeNotFoundError,
    PenstockError,
    PublishUnknownError,
    ServerUnreachableError,
)

DONE, COULD_NOT, USAGE, NOT_FOUND, UNREACHABLE, UNCONFIRMED, INTERRUPTED, UNHEARD = 0, 1, 2, 3, 4, 5, 130, 141

EXIT_CODES = {
    DONE: "done, with or without anything to show",
    COULD_NOT: "it could not be done; a line on stderr says why",
    USAGE: "the command line, or $PENSTOCK_URL in its stead, makes no sense",
    NOT_FOUND: "what it names is not there",
    UNREACHABLE: "the server cannot be reached",
    UNCONFIRMED: "nothing was changed: what would be lost needs --yes",
    INTERRUPTED: "Ctrl-C; of what runs until it is stopped, 0",
    UNHEARD: "whoever read its output has left, as head does",
}


class UsageError(Exception):
    """The command line is wrong in a way the parser cannot see. Shown as one line; the exit code is 2."""


class NotThereError(PenstockError):
    """What the command line names is not there."""


class UnconfirmedError(PenstockError):
    """The command was only tried: it changes nothing without --yes."""


_CODES: tuple[tuple[type[Exception], int], ...] = (
    (CannotListenError, COULD_NOT),
    (ConfigurationError, USAGE),
    (NotThereError, NOT_FOUND),
    (GroupMissingError, NOT_FOUND),
    (CursorNotFoundError, NOT_FOUND),
    (JobNotFoundError, NOT_FOUND),
    (LakeNotFoundError, NOT_FOUND),
    (ServerUnreachableError, UNREACHABLE),
    (PublishUnknownError, UNREACHABLE),
    (UnconfirmedError, UNCONFIRMED),
)


def code_of(error: PenstockError) -> int:
    """With which exit code a command ends that raised this."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), COULD_NOT)
