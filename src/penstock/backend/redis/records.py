"""Messages that are found by their id, and what is kept of them beside the streams."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from penstock.backend import keys
from penstock.backend.parcel import unpack_fields
from penstock.backend.redis.links import Word
from penstock.backend.redis.scripts import load, load_to_look
from penstock.backend.redis.verbs import Verbs, byte_count, milliseconds, pieces
from penstock.backend.trail import Located, Trail, Where
from penstock.errors import ConfigurationError
from penstock.message.ids import canonical
from penstock.message.times import EPOCH, moment

_RECORDS_PER_SCRIPT = 100


class Records(Verbs):
    """`locate`, `cancel`, `hasten`, `reassign` and `note` of the Redis backend."""

    async def locate(self, group: str, message_id: str, place: tuple[str, str] | None = None) -> Located:
        located, _ = await self._control("look", group, message_id, place)
        return located

    async def cancel(self, group: str, message_id: str, place: tuple[str, str] | None = None) -> tuple[Located, bool]:
        located, done = await self._control("cancel", group, message_id, place)
        return located, done == 1

    async def hasten(self, group: str, message_id: str, place: tuple[str, str] | None = None) -> tuple[Located, bool]:
        located, done = await self._control("run", group, message_id, place)
        return located, done == 1

    async def reassign(
        self, group: str, message_id: str, topic: str, place: tuple[str, str] | None = None
    ) -> tuple[Located, bool]:
        located, done = await self._control(self._records().lanes.index(topic), group, message_id, place)
        return located, done == 1

    async def _control(
        self, act: Word, group: str, message_id: str, place: tuple[str, str] | None
    ) -> tuple[Located, int]:
        trail, id = self._records(), _uuid(message_id)
        names = [keys.record(trail.home, id), keys.recalled(trail.home)]
        for lane in trail.lanes:
            names += [lane, keys.retry(lane, group), keys.parked(lane, group), self._dead(lane)]
        hint = "" if place is None else _hint(trail, *place)
        doing, keep = f"cannot look for {id} in {trail.home!r}", trail.keep if act == "cancel" else trail.keep_waiting
        script = load_to_look("job") if act == "look" else load("job")
        reply = await self._links.script(doing, script, names, group, id, hint, milliseconds("keep", keep), act)
        now, record, found, done = reply
        return _located(trail, now, record, found), done

    async def note(self, notes: Mapping[str, Mapping[str, bytes]], keep: timedelta) -> Sequence[str]:
        trail, keep_ms = self._records(), milliseconds("keep", keep, least=1)
        asked: list[str] = []
        items = [(_uuid(id), fields) for id, fields in notes.items()]
        for some in pieces(items, _RECORDS_PER_SCRIPT, lambda item: byte_count(item[1].values())):
            names = [keys.record(trail.home, id) for id, _ in some]
            args: list[Word] = [keep_ms]
            for _, fields in some:
                args += [2 * len(fields), *[word for pair in fields.items() for word in pair]]
            doing = f"cannot write to the records of {trail.home!r}"
            answers = await self._links.repeatable_script(doing, load("note"), names, *args)
            asked += [id for (id, _), answer in zip(some, answers, strict=True) if answer]
        return asked

    async def let_go(self, message_id: str) -> None:
        trail = self._records()
        key, keep_ms = keys.record(trail.home, _uuid(message_id)), milliseconds("keep", trail.keep, least=1)
        await self._links.command(f"cannot let go of {message_id}", "PEXPIRE", key, keep_ms)

    def _records(self) -> Trail:
        if self._trail is None:
            raise ConfigurationError("this backend keeps no records: ask one that speaks with a trail")
        return self._trail


def _hint(trail: Trail, stream: str, id: str) -> str:
    return f"{'retry' if keys.is_retry(stream) else 'lane'} {trail.lanes.index(keys.home(stream))} {id}"


def _uuid(text: str) -> str:
    id = canonical(text)
    if id is None:
        raise ConfigurationError(f"a job is known by its UUID, not by {text!r}")
    return id


def _located(trail: Trail, now: bytes, record: Sequence[bytes], found: Sequence[bytes]) -> Located:
    where, lane, id, content, consumer, stream = found
    kind = Where(where.decode())
    known = {name.decode(): value for name, value in zip(record[::2], record[1::2], strict=True)}
    at = moment(int(now)) or EPOCH
    if kind is Where.GONE:
        return Located(kind, at, known)
    is_parked = kind is Where.PARKED
    return Located(
        kind,
        at,
        known,
        topic=trail.lanes[int(lane)],
        id="" if is_parked else id.decode(),
        due=moment(int(id)) if is_parked else None,
        raw=unpack_fields(content) if is_parked else content,  # type: ignore[arg-type]
        consumer=consumer.decode(errors="backslashreplace"),
        stream=stream.decode(),
    )
