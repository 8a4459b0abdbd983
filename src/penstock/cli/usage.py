"""How a command ends, for the shell, and what it raises to end so.

====  ==================================================================================================
code  meaning
====  ==================================================================================================
0     done; of an empty answer too
1     it could not be done: one line on stderr says what happened, and what to do
2     the command line makes no sense
3     what was asked for by name is not there: a topic, a group, a message, a job, a context
4     the server cannot be reached
5     nothing was changed, since what it would lose or redeliver needs --yes
130   Ctrl-C
141   whoever read the output has left, as `| head` does; nothing is said of it
====  ==================================================================================================

Commands that run until they are stopped (up, run, serve) end with 0 if they were asked to stop, by Ctrl-C too.
"""

from penstock.errors import (
    CursorNotFoundError,
    GroupMissingError,
    JobNotFoundError,
    PenstockError,
    ServerUnreachableError,
)

COULD_NOT, USAGE, NOT_FOUND, UNREACHABLE, UNCONFIRMED, INTERRUPTED, UNHEARD = 1, 2, 3, 4, 5, 130, 141


class UsageError(Exception):
    """The command line is wrong in a way the parser cannot see. Shown as one line; the exit code is 2."""


class NotThereError(PenstockError):
    """What the command line names is not there."""


class UnconfirmedError(PenstockError):
    """The command was only tried: it changes nothing without --yes."""


_CODES: tuple[tuple[type[Exception], int], ...] = (
    (NotThereError, NOT_FOUND),
    (GroupMissingError, NOT_FOUND),
    (CursorNotFoundError, NOT_FOUND),
    (JobNotFoundError, NOT_FOUND),
    (ServerUnreachableError, UNREACHABLE),
    (UnconfirmedError, UNCONFIRMED),
)


def code_of(error: PenstockError) -> int:
    """With which exit code a command ends that raised this."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), COULD_NOT)
