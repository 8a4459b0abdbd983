"""Sharing out the partitions of a topic: who is there, and how many partitions there are."""

from datetime import timedelta

from penstock.backend import keys
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import Verbs, check_names, milliseconds, whole_number
from penstock.errors import TopicError


class Sharing(Verbs):
    """The verbs of `SharesOut` of the Redis backend."""

    async def join(self, topic: str, group: str, member: str, lease: timedelta) -> list[str]:
        names, lease_ms = [_members(topic, group, member)], milliseconds("lease", lease, least=1)
        doing = f"cannot join those who read {topic!r} for group {group!r}"
        found = await self._links.repeatable_script(doing, load("join"), names, member, lease_ms)
        return sorted(raw.decode() for raw in found)

    async def leave(self, topic: str, group: str, member: str) -> None:
        doing = f"cannot leave those who read {topic!r} for group {group!r}"
        await self._links.command(doing, "ZREM", _members(topic, group, member), member)

    async def note_partitions(self, topic: str, count: int) -> int:
        keys.check_topic(topic)
        whole_number("the number of partitions", count)
        # Whoever sets it first, all are told the same. Asked first: a full server refuses to be told what it knows.
        if (noted := await self.partitions(topic)) is not None:
            return noted
        key = keys.partitions(topic)
        await self._links.command(f"cannot note the partitions of {topic!r} in {key}", "SET", key, count, "NX")
        return await self.partitions(topic) or count

    async def partitions(self, topic: str) -> int | None:
        keys.check_topic(topic)
        key = keys.partitions(topic)
        noted: bytes | None = await self._links.command(f"cannot see the partitions of {topic!r} in {key}", "GET", key)
        if noted is not None and not (noted.isdigit() and int(noted)):
            raise TopicError(f"{key} holds no number of partitions of topic {topic!r}, but {noted[:40]!r}: remove it")
        return None if noted is None else int(noted)

    async def renumber_partitions(self, topic: str, was: int, count: int) -> bool:
        keys.check_topic(topic)
        whole_number("the number of partitions", count)
        doing = f"cannot change the number of partitions of {topic!r}"
        return bool(await self._links.script(doing, load("renumber"), [keys.partitions(topic)], was, count))

    async def is_paused(self, topic: str, group: str) -> bool:
        check_names(topic, group)
        doing = f"cannot see whether group {group!r} of {topic!r} is paused, in {keys.paused(topic)}"
        return bool(await self._links.command(doing, "SISMEMBER", keys.paused(topic), group))


def _members(topic: str, group: str, member: str) -> str:
    check_names(topic, group)
    keys.check_name("member", member)
    return keys.members(topic, group)
