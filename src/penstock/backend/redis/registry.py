"""Which topics there are, and which of their groups are to read nothing for now."""

from penstock.backend import keys
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import Verbs, check_names, entry_id

_TOPICS_PER_CALL = 1000


class Registry(Verbs):
    """`register`, `topics`, `pause`, `resume` and `obey` of the Redis backend."""

    async def register(self, topic: str) -> None:
        keys.check_named(topic)
        doing = f"cannot register {topic!r} in {keys.TOPICS}"
        # Asked first: it is known nearly always, and then there is nothing to write.
        if not await self._links.command(doing, "SISMEMBER", keys.TOPICS, topic):
            await self._links.repeatable_script(doing, load("remember"), [keys.TOPICS], topic)

    async def topics(self) -> list[str]:
        found: set[str] = set()
        cursor = b"0"
        while True:
            words = (keys.TOPICS, cursor, "COUNT", _TOPICS_PER_CALL)
            cursor, names = await self._links.command(f"cannot list the topics in {keys.TOPICS}", "SSCAN", *words)
            found.update(name.decode(errors="backslashreplace") for name in names)
            if cursor == b"0":
                return sorted(found)

    async def pause(self, topic: str, group: str) -> None:
        doing, paused = self._about(topic, group)
        await self._links.repeatable_script(doing, load("remember"), [paused], group)

    async def resume(self, topic: str, group: str) -> bool:
        doing, paused = self._about(topic, group)
        return bool(await self._links.command(doing, "SREM", paused, group))

    async def obey(self, topic: str, group: str, *, paused: bool, epoch: str, command_id: str) -> bool:
        check_names(topic, group)
        home = keys.home(topic)
        names = [keys.paused(home), keys.obeyed(home)]
        doing = f"cannot {'pause' if paused else 'resume'} group {group!r} of {topic!r} as command {command_id} says"
        args = (group, int(paused), epoch, entry_id("a command", command_id))
        return bool(await self._links.repeatable_script(doing, load("obey"), names, *args))

    def _about(self, topic: str, group: str) -> tuple[str, str]:
        """What is tried with the group, for errors, and the key where it is noted."""
        check_names(topic, group)
        paused = keys.paused(keys.home(topic))
        return f"cannot pause or resume group {group!r}, noted in {paused}", paused
