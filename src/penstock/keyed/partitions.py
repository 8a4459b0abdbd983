"""Which partition a message belongs to, and how many of them each process is to have. Numbers alone."""

from collections.abc import Sequence
from zlib import crc32

from penstock.backend import keys
from penstock.errors import ConfigurationError
from penstock.options import ByKey, check_count, check_kind

MOST_PARTITIONS = 1024


def partition_of(key: str, count: int) -> int:
    """The CRC-32 of the key in UTF-8, modulo the number of partitions: the same in every process and language."""
    return crc32(key.encode(errors="surrogatepass")) % count


def names_of(topic: str, count: int) -> list[str]:
    """The topics that are the partitions of `topic`."""
    check_count("partitions", count)
    if count > MOST_PARTITIONS:
        raise ConfigurationError(f"partitions is at most {MOST_PARTITIONS}, not {count}")
    return [keys.partition(topic, number) for number in range(count)]


def ordering_of(topics: Sequence[str], partitions: int | None, ordering: ByKey | str | None) -> ByKey | None:
    """How a bus is to keep order; None if it is not to."""
    if partitions is None and ordering is None:
        return None
    if partitions is None or ordering is None or len(topics) != 1:
        raise ConfigurationError('order by key is asked for with app.bus(one topic, partitions=n, ordering="key")')
    if ordering == "key":
        return ByKey()
    check_kind('ordering, unless "key",', ordering, ByKey)
    return ordering  # type: ignore[return-value]


def share_of(count: int, members: Sequence[str], me: str) -> int:
    """How many of `count` partitions are mine, if `members` are all there are, sorted. The shares add up to all."""
    if me not in members:
        return 0
    each, more = divmod(count, len(members))
    return each + (members.index(me) < more)
