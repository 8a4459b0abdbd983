"""Schedules that tick, each tick once."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.backend import keys
from penstock.backend.crons import CronChange, CronPlan, CronRecord, CronSheet
from penstock.backend.redis.links import Word
from penstock.backend.redis.records import Records
from penstock.backend.redis.scripts import load, load_to_look
from penstock.backend.redis.verbs import byte_count, pieces
from penstock.message.message import Message

_TICKS_PER_SCRIPT = 100


class Crons(Records):
    """`look_at_crons`, `tick` and `change_cron` of the Redis backend."""

    async def look_at_crons(self, begin: Mapping[str, CronPlan] | None = None) -> CronSheet:
        home = self._records().home
        words = [word for name, plan in (begin or {}).items() for word in (name, *plan)]
        doing = f"cannot look at the schedules of {home!r}"
        script = load("cron_look") if words else load_to_look("cron_look")
        now, known = await self._links.repeatable_script(doing, script, [keys.crons(home)], *words)
        return CronSheet(int(now), _records(dict(zip(known[::2], known[1::2], strict=True))))

    async def tick(
        self, topic: str, name: str, plan: CronPlan, last: int, up_to: int, ticks: Sequence[tuple[int, Message[Any]]]
    ) -> bool:
        home = self._records().home
        packed = [(at, self._wire(topic).pack(message, topic)) for at, message in ticks]
        parts = list(pieces(packed, _TICKS_PER_SCRIPT, lambda tick: byte_count(tick[1]))) or [[]]
        doing, names = f"cannot enqueue what schedule {name!r} of {home!r} asks for", [keys.crons(home), topic]
        for part in parts:
            end = up_to if part is parts[-1] else part[-1][0]
            words = list[Word]()
            for _, fields in part:
                words += [len(fields), *fields]
            script = load("cron_tick")
            if not await self._links.repeatable_script(doing, script, names, name, *plan, last, end, *words):
                return False
            last = end
        return True

    async def change_cron(self, name: str, change: CronChange) -> bool:
        home = self._records().home
        doing = f"cannot {change.value} schedule {name!r} of {home!r}"
        script = load("cron_change")
        return bool(await self._links.repeatable_script(doing, script, [keys.crons(home)], name, change.value))


def _records(known: Mapping[bytes, bytes]) -> dict[str, CronRecord]:
    names = [field.removeprefix(b"times/") for field in known if field.startswith(b"times/")]
    return {name.decode(): _record(known, name) for name in sorted(names)}


def _record(known: Mapping[bytes, bytes], name: bytes) -> CronRecord:
    plan = CronPlan(known[b"times/" + name].decode(), known.get(b"terms/" + name, b"").decode())
    return CronRecord(plan, int(known.get(b"last/" + name, b"0")), b"paused/" + name in known)
