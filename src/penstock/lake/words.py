"""The lake's own tables by their names, and how values and names are written in SQL."""

RAW, MALFORMED, DEAD = "raw", "malformed", "dead"


def text(value: str) -> str:
    """A value as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def name(value: str) -> str:
    """A name as SQL writes it, whatever is in it."""
    return '"' + value.replace('"', '""') + '"'
