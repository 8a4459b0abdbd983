"""What is wrong with a command line, in words of ours where the parser's tell a user nothing."""

import shlex
from collections.abc import Sequence

from cyclopts import CycloptsError, MissingArgumentError, UnknownCommandError, UnusedCliTokensError

_FLAGS = {"help": "--help", "version": "--version"}


def complaint(error: Exception, words: Sequence[str]) -> str:
    """One sentence or several, in one line, of a command line that begins with the command of these words.

    Part of it may be what a stranger has written: no terminal obeys it.
    """
    from penstock.cli.shown import line_of  # it loads what `--help` does not need

    told = line_of(" ".join(_told(error, " ".join(["penstock", *words])).split()))
    return told if told.endswith((".", "?", "!")) else f"{told}."


def _told(error: Exception, command: str) -> str:
    if isinstance(error, UnknownCommandError) and error.unused_tokens:
        return _no_command(error, error.unused_tokens[0], command)
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        count = len(error.unused_tokens)
        return f"{count} argument{'s' if count > 1 else ''} too many: {shlex.join(error.unused_tokens)}"
    if type(error) is MissingArgumentError:
        return _missing(error, command)
    return str(error)


def _no_command(error: CycloptsError, word: str, command: str) -> str:
    if word.startswith("-"):
        return f"{word.partition('=')[0]} is no option of {command} alone: options come behind the whole command"
    if word in _FLAGS:
        return f'Unknown command "{word}". Did you mean {_FLAGS[word]}?'
    return str(error)


def _missing(error: MissingArgumentError, command: str) -> str:
    """The parser tells of an option that was not given as of one that was, without its value."""
    wanted = error.argument
    if wanted is None or error.keyword is not None or wanted.tokens:
        return str(error)
    _, _, hint = str(error).partition(" Did you mean ")
    return f"{wanted.name} is missing: {command} needs it." + (f" Did you mean {hint}" if hint else "")
