"""Looking for a fault: the server itself, and what lies beside a topic. Changes nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

import msgspec

from penstock.backend import keys
from penstock.backend.address import Address
from penstock.backend.evidence import Books, Key, Parcel, ServerFacts
from penstock.backend.parcel import split_record, unpack_fields
from penstock.backend.redis.later import PREFIX_BYTES
from penstock.backend.redis.scripts import load
from penstock.backend.redis.turns import number_of
from penstock.backend.redis.verbs import Verbs, check_names, entry_id, text_of
from penstock.errors import AuthenticationError, GroupMissingError, ServerError
from penstock.message.ids import canonical
from penstock.message.times import moment

_BYTES_PER_SCRIPT = 256 * 1024
_IDS_PER_SCRIPT = 100
_PARCELS = 20  # of up to a MiB each
_SECTIONS = ("server", "memory", "persistence", "replication", "stats", "errorstats", "cluster")
_SETTINGS = (
    "appendfsync", "save", "stop-writes-on-bgsave-error", "timeout", "tcp-keepalive", "min-replicas-to-write",
)  # fmt: skip


class Examining(Verbs):
    """The verbs of `Examines` of the Redis backend."""

    async def server(self) -> ServerFacts:
        raw: bytes = await self._links.command("cannot ask the server how it stands", "INFO", *_SECTIONS)
        lines = (line.partition(":") for line in raw.decode(errors="replace").splitlines() if ":" in line)
        info = {name: value for name, _, value in lines}
        return _server(info, await self._settings(), self._links.opener.address)

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

    async def begun(self, stream: str, group: str, ids: Sequence[str]) -> dict[str, int]:
        check_names(stream, group)
        if not ids:
            return {}
        key = keys.starts(keys.home(stream), group)
        fields = [keys.start_field(stream, entry_id("an entry to look for", id)) for id in ids]
        doing = f"cannot look how often entries of {stream!r} were begun in {key}"
        marks = await self._links.command(doing, "HMGET", key, *fields)
        counts = (number_of((mark or b"").partition(b" ")[0]) for mark in marks)
        return {id: count for id, count in zip(ids, counts, strict=True) if count}

    async def parcels(self, topic: str, group: str | None) -> AsyncIterator[Parcel]:
        keys.check_topic(topic)
        key = keys.later(topic) if group is None else keys.parked(topic, group)
        doing = f"cannot look at what waits in {key}"
        # Not by rank: whatever becomes due takes its rank from all behind it. `passed` are those of the last score.
        due, passed, last = b"-inf", 0, b""
        while True:
            again = min(passed, 1)
            page = ("LIMIT", passed - again, _PARCELS + again, "WITHSCORES")
            found = await self._links.command(doing, "ZRANGE", key, due, "+inf", "BYSCORE", *page)
            pairs = list(zip(found[::2], found[1::2], strict=True))
            if again and (not pairs or pairs[0][0] != last):
                passed = 0  # some of that score have left, and others stand in their place
                continue
            if not pairs[again:]:
                return
            for parcel, score in pairs[again:]:
                passed, due, last = (passed + 1 if score == due else 1), score, parcel
                yield _parcel(parcel, score, is_retry=group is not None)

    async def keys_of(self, topic: str, groups: Iterable[str]) -> list[Key]:
        keys.check_topic(topic)
        expected = {topic: "stream", self._dead(topic): "stream", **keys.types_of(topic, groups)}
        doing = f"cannot look at the keys of {topic!r}"
        found = await asyncio.gather(*(self._links.command(doing, "TYPE", name) for name in expected))
        return [Key(name, kind, text_of(type)) for (name, kind), type in zip(expected.items(), found, strict=True)]

    async def is_handled(self, topic: str, group: str, message_id: str) -> bool:
        check_names(topic, group)
        key = keys.handled(topic, group, canonical(message_id) or message_id)
        doing = f"cannot look whether group {group!r} of {topic!r} has handled {message_id}"
        return bool(await self._links.command(doing, "GET", key) == b"done")

    async def _group_rows(self, topic: str) -> list[list[bytes]]:
        try:
            rows: list[list[bytes]] = await self._links.command(
                f"cannot list the groups of {topic!r}", "XINFO", "GROUPS", topic
            )
        except GroupMissingError:  # there is no such stream: what is noted outlives it
            return []
        return rows

    async def books(self, topic: str) -> Books:
        keys.check_topic(topic)
        doing = f"cannot look at what is noted of {topic!r} in "
        known, asked_to_wait = keys.groups(topic), keys.paused(topic)
        registered, notes, paused, groups = await asyncio.gather(
            self._links.command(doing + keys.TOPICS, "SISMEMBER", keys.TOPICS, topic),
            self._links.command(doing + known, "HGETALL", known),
            self._links.command(doing + asked_to_wait, "SMEMBERS", asked_to_wait),
            self._group_rows(topic),
        )
        noted: dict[str, bool] = {}
        for field, note in zip(notes[::2], notes[1::2], strict=True):
            name = text_of(field).partition("/")[2]
            noted[name] = noted.get(name, True) and _is_note(note)
        epochs: list[str] = []
        there = {text_of(row[1]) for row in groups}
        if keys.OWN_GROUP in there:
            rows = await self._links.command(doing + topic, "XINFO", "CONSUMERS", topic, keys.OWN_GROUP)
            names = (text_of(row[1]) for row in rows)
            epochs = [name.removeprefix("epoch-") for name in names if name.startswith("epoch-")]
        here = frozenset(there - {keys.OWN_GROUP})
        return Books(bool(registered), here, noted, frozenset(map(text_of, paused)), tuple(epochs))


def _server(info: Mapping[str, str], settings: Mapping[str, str], address: Address | None) -> ServerFacts:
    valkey, stops = info.get("valkey_version"), settings.get("stop-writes-on-bgsave-error")
    good = info.get("min_slaves_good_slaves")  # left out where it is not minded

    def setting(name: str) -> int | None:
        return int(settings[name]) if name in settings else None

    return ServerFacts(
        address=address,
        product="valkey" if valkey else "redis",
        version=valkey or info.get("redis_version", "0"),
        is_replica=info.get("role") == "slave",
        link_up=info.get("master_link_status", "up") == "up",
        replicas=int(info.get("connected_slaves", 0)),
        good_replicas=None if good is None else int(good),
        is_cluster=info.get("cluster_enabled") == "1",
        used_memory=int(info.get("used_memory", 0)),
        maxmemory=int(info.get("maxmemory", 0)),
        policy=info.get("maxmemory_policy", ""),
        evicted=int(info.get("evicted_keys", 0)),
        refused=int(info.get("errorstat_OOM", "count=0").removeprefix("count=")),
        appends=info.get("aof_enabled") == "1",
        append_ok=info.get("aof_last_write_status", "ok") == "ok",
        rewrite_ok=info.get("aof_last_bgrewrite_status", "ok") == "ok",
        snapshot_ok=info.get("rdb_last_bgsave_status", "ok") == "ok",
        fsync=settings.get("appendfsync"),
        snapshots=settings.get("save"),
        stops_without_snapshot=None if stops is None else stops == "yes",
        idle_seconds=setting("timeout"),
        keepalive_seconds=setting("tcp-keepalive"),
        min_replicas=setting("min-replicas-to-write"),
    )


def _parcel(parcel: bytes, due: bytes, *, is_retry: bool) -> Parcel:
    at = moment(float(due))
    try:
        raw = unpack_fields(parcel if is_retry else parcel[PREFIX_BYTES:])
    except ValueError as error:
        return Parcel(at, problem=str(error))
    if not is_retry:
        return Parcel(at, raw)
    kept, record = split_record(raw)
    return Parcel(at, kept, record, "" if record else "it has no record of the attempts before it")


def _is_note(raw: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(raw), dict)
    except msgspec.DecodeError:
        return False
