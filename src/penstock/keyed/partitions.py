"""Which partition a message belongs to, and how many of them each process is to have. Numbers alone."""

from collections.abc import Sequence
from zlib import crc32

from penstock.errors import ConfigurationError
from penstock.options import check_count

MOST_PARTITIONS = 1024


def partition_of(key: str, count: int) -> int:
    """The CRC-32 of the key in UTF-8, modulo the number of partitions: the same in every process and language."""
    return crc32(key.encode(errors="surrogatepass")) % count


def names_of(topic: str, count: int) -> list[str]:
    """The topics that are the partitions of `topic`."""
    check_count("partitions", count)
    if count > MOST_PARTITIONS:
        raise ConfigurationError(f"partitions is at most {MOST_PARTITIONS}, not {count}")
    return [f"{topic}:p{number}" for number in range(count)]


def share_of(count: int, members: Sequence[str], me: str) -> int:
    """How many of `count` partitions are mine, if `members` are all there are, sorted. The shares add up to all."""
    if me not in members:
        return 0
    each, more = divmod(count, len(members))
    return each + (members.index(me) < more)
