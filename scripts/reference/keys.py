"""The page on keys, from the one file that builds them."""

from penstock.backend import keys

HEAD = """# Keys

Made from `backend/keys.py` by `make docs`. These are all the keys that Penstock writes. Streams of messages have names
of your choice: a topic's is exactly the one that you give it, lanes and partitions add to it, and the stream manager
puts dead letters where it is told. Every other key begins with `penstock:`. In a cluster, whatever belongs to a topic
shares its slot.

`<slot>` is what the server hashes: the topic's own `{tag}`, or its whole name. `<g>` is a group, `<r>` a reader, `<q>`
a query of Spark, each quoted like a part of a URL.

"""

FOOT = """
What topics there are is in `penstock:topics`. Only two commands go through all keys of the server, with SCAN: `penstock
topic rm`, also while it only says what it would do, and `penstock topic adopt --match`. [The wire format](wire.md) says
what is in an entry, [security](../security.md#accounts) which account needs which keys.
"""


def page() -> str:
    """The rows of the module's table, which is parted in two only for its reader's eyes."""
    rows = [line for line in (keys.__doc__ or "").splitlines() if line.startswith("|")]
    return HEAD + "\n".join(_row(row) for row in rows) + "\n" + FOOT


def _row(line: str) -> str:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    return "|" + "|".join("---" if set(cell) == {"-"} else f" {cell} " for cell in cells) + "|"
