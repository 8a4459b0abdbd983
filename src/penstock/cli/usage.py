"""What a command raises when it was asked for something that makes no sense."""


class UsageError(Exception):
    """The command line is wrong in a way the parser cannot see. Shown as one line; the exit code is 2."""
