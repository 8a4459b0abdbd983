"""Looking for a fault: the server itself, and what lies beside a topic. Changes nothing."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from penstock.backend import keys
from penstock.backend.evidence import Books, Key, Parcel, ServerFacts, Turn
from penstock.backend.parcel import split_record, unpack_fields
from penstock.backend.redis.later import PREFIX_BYTES
from penstock.backend.redis.scripts import load
from penstock.backend.redis.verbs import Verbs, check_names, entry_id, whole_number
from penstock.errors import AuthenticationError, ServerError

_BYTES_PER_SCRIPT = 256 * 1024
_IDS_PER_SCRIPT = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECTIONS = ("server", "memory", "persistence", "replication", "stats", "cluster")
_SETTINGS = (
    "appendfsync", "save", "stop-writes-on-bgsave-error", "timeout", "tcp-keepalive", "min-replicas-to-write",
)  # fmt: skip


class Examining(Verbs):
    """The verbs of `Examines` of the Redis backend."""

    async def server(self) -> ServerFacts:
        raw: bytes = await self._links.command("cannot ask the server how it stands", "INFO", *_SECTIONS)
        lines = (line.partition(":") for line in raw.decode(errors="replace").splitlines() if ":" in line)
        return _server({name: value for name, _, value in lines}, await self._settings())

    async def _settings(self) -> Mapping[str, str]:
        try:
            doing = "cannot ask the server for its settings"
            found = await self._links.command(doing, "CONFIG", "GET", *_SETTINGS)
        except AuthenticationError:
            return {}  # not for this user, or, at a hosted server, for nobody
        except ServerError as error:
            if "unknown" in str(error).lower():
                return {}
            raise
        words = [word.decode() for word in found]
        return dict(zip(words[::2], words[1::2], strict=True))

    async def gone(self, stream: str, ids: Sequence[str]) -> set[str]:
        keys.check_topic(stream)
        left, found = [entry_id("an entry to look for", id) for id in ids], set[str]()
        doing = f"cannot look for entries of {stream!r}"
        while left:
            some = left[:_IDS_PER_SCRIPT]
            verdicts = await self._links.repeatable_script(doing, load("gone"), [stream], _BYTES_PER_SCRIPT, *some)
            found |= {id for id, gone in zip(some, verdicts, strict=False) if gone}
            left = left[len(verdicts) :]
        return found

    async def turn(self, topic: str, reader: str) -> Turn | None:
        check_names(topic, reader)
        key = keys.turn(topic, reader)
        doing = f"cannot look at the turn of reader {reader!r} in {key}"
        words = ("token", "holder", "until", "head", "failed")
        known, (seconds, micros) = await asyncio.gather(
            self._links.command(doing, "HMGET", key, *words), self._links.command(doing, "TIME")
        )
        token, holder, until, head, failed = known
        if token is None:
            return None
        return Turn(
            now=_EPOCH + timedelta(seconds=int(seconds), microseconds=int(micros)),
            holder=_text(holder) if holder else None,
            until=_moment(until) if until else None,
            failed_id=_text(head or b""),
            failures=int(failed or 0),
        )

    async def parcels(self, topic: str, group: str | None, start: int = 0, count: int = 20) -> list[Parcel]:
        keys.check_topic(topic)
        whole_number("start", start, least=0)
        whole_number("count", count)
        key = keys.later(topic) if group is None else keys.parked(topic, group)
        bounds = (start, start + count - 1, "WITHSCORES")
        found = await self._links.command(f"cannot look at what waits in {key}", "ZRANGE", key, *bounds)
        pairs = zip(found[::2], found[1::2], strict=True)
        return [_parcel(parcel, due, is_retry=group is not None) for parcel, due in pairs]

    async def keys_of(self, topic: str, groups: Iterable[str]) -> list[Key]:
        keys.check_topic(topic)
        expected = {topic: "stream", self._dead(topic): "stream", **keys.types_of(topic, groups)}
        doing = f"cannot look at the keys of {topic!r}"
        found = await asyncio.gather(*(self._links.command(doing, "TYPE", name) for name in expected))
        return [Key(name, kind, _text(type)) for (name, kind), type in zip(expected.items(), found, strict=True)]

    async def books(self, topic: str) -> Books:
        keys.check_topic(topic)
        doing = f"cannot look at what is noted of {topic!r} in "
        known, asked_to_wait = keys.groups(topic), keys.paused(topic)
        registered, notes, paused, groups = await asyncio.gather(
            self._links.command(doing + keys.TOPICS, "SISMEMBER", keys.TOPICS, topic),
            self._links.command(doing + known, "HGETALL", known),
            self._links.command(doing + asked_to_wait, "SMEMBERS", asked_to_wait),
            self._links.command(doing + topic, "XINFO", "GROUPS", topic),
        )
        noted: dict[str, bool] = {}
        for field, note in zip(notes[::2], notes[1::2], strict=True):
            name = _text(field).partition("/")[2]
            noted[name] = noted.get(name, True) and _is_note(note)
        epochs: list[str] = []
        there = {_text(row[1]) for row in groups}
        if keys.OWN_GROUP in there:
            rows = await self._links.command(doing + topic, "XINFO", "CONSUMERS", topic, keys.OWN_GROUP)
            names = (_text(row[1]) for row in rows)
            epochs = [name.removeprefix("epoch-") for name in names if name.startswith("epoch-")]
        here = frozenset(there - {keys.OWN_GROUP})
        return Books(bool(registered), here, noted, frozenset(map(_text, paused)), tuple(epochs))


def _server(info: Mapping[str, str], settings: Mapping[str, str]) -> ServerFacts:
    valkey, stops = info.get("valkey_version"), settings.get("stop-writes-on-bgsave-error")

    def setting(name: str) -> int | None:
        return int(settings[name]) if name in settings else None

    return ServerFacts(
        product="valkey" if valkey else "redis",
        version=valkey or info.get("redis_version", "0"),
        is_replica=info.get("role") == "slave",
        link_up=info.get("master_link_status", "up") == "up",
        replicas=int(info.get("connected_slaves", 0)),
        is_cluster=info.get("cluster_enabled") == "1",
        used_memory=int(info.get("used_memory", 0)),
        maxmemory=int(info.get("maxmemory", 0)),
        policy=info.get("maxmemory_policy", ""),
        evicted=int(info.get("evicted_keys", 0)),
        appends=info.get("aof_enabled") == "1",
        append_ok=all(info.get(f"aof_last_{what}_status", "ok") == "ok" for what in ("write", "bgrewrite")),
        snapshot_ok=info.get("rdb_last_bgsave_status", "ok") == "ok",
        fsync=settings.get("appendfsync"),
        snapshots=settings.get("save"),
        stops_without_snapshot=None if stops is None else stops == "yes",
        idle_seconds=setting("timeout"),
        keepalive_seconds=setting("tcp-keepalive"),
        min_replicas=setting("min-replicas-to-write"),
    )


def _parcel(parcel: bytes, due: bytes, *, is_retry: bool) -> Parcel:
    moment = _moment(due)
    try:
        raw = unpack_fields(parcel if is_retry else parcel[PREFIX_BYTES:])
    except ValueError as error:
        return Parcel(moment, None, str(error))
    if not is_retry:
        return Parcel(moment, None)
    _, record = split_record(raw)
    if record is None:
        return Parcel(moment, None, "it has no record of the attempts before it")
    return Parcel(moment, record.entry)


def _is_note(raw: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(raw), dict)
    except msgspec.DecodeError:
        return False


def _moment(ms: bytes) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=float(ms))
    except (ValueError, OverflowError):
        return None


def _text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")
