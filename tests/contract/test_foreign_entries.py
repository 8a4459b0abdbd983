"""Whatever others put on a stream is read as a message, or handed over as malformed with every byte of it."""

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, FetchedEntry, Malformed, Park, Settled
from penstock.backend.parcel import pack_fields, split_dead
from penstock.backend.redis import RedisBackend
from penstock.errors import ConfigurationError
from penstock.message.ids import foreign_id
from penstock.message.message import Message
from penstock.message.wire import Wire
from penstock.options import Limits
from tests.support.servers import Server

NO_WAIT = timedelta(0)
LONG = timedelta(seconds=5)

# The example of seed 002, but for its address.
REDIS_PY_EXAMPLE = """
import json, uuid, redis

r = redis.Redis.from_url("URL", decode_responses=True)
topic = "chat:example"

# Append with canonical UUID + JSON payload
bus_id = str(uuid.uuid4())
r.xadd(topic, {"id": bus_id, "payload": json.dumps({"content": "hello"})})

# Tail read last 10 entries (no group)
entries = r.xrevrange(topic, "+", "-", count=10) or []
entries.reverse()
for entry_id, fields in entries:
    payload = json.loads(fields.get("payload", "{}"))
    print(entry_id, fields.get("id"), payload)

# Consumer group read + ack
group, consumer = "g1", "c1"
try:
    r.xgroup_create(topic, group, id="0", mkstream=True)
except Exception as e:
    if "BUSYGROUP" not in str(e):
        raise
resp = r.xreadgroup(groupname=group, consumername=consumer, streams={topic: ">"}, count=10, block=0)
for _, items in (resp or []):
    for entry_id, fields in items:
        # process ...
        r.xack(topic, group, entry_id)
"""

REDIS_CLI_LINES = """
redis-cli XGROUP CREATE chat:DevAgent g1 0 MKSTREAM
redis-cli XADD chat:DevAgent * id 123 payload '{"content":"hi"}'
redis-cli XREADGROUP GROUP g1 c1 COUNT 10 STREAMS chat:DevAgent >
"""


def add(admin: "redis.Redis", topic: str, *fields: bytes | str) -> str:
    """XADD as any client may send it; redis-py's own would refuse some of it."""
    return admin.execute_command("XADD", topic, "*", *fields).decode()  # type: ignore[no-any-return]


def stored(admin: "redis.Redis", key: str) -> list[list[bytes]]:
    """The entries of a stream, as flat lists: a dict would hide duplicate fields."""
    admin.response_callbacks.pop("XRANGE", None)
    return [list(fields) for _, fields in admin.execute_command("XRANGE", key, "-", "+")]


@pytest.mark.needs("redis-cli", "sh")
async def test_the_three_redis_cli_lines_make_a_message_of_ours(
    server: Server, backend: RedisBackend, admin: "redis.Redis"
) -> None:
    topic = "chat:DevAgent"
    admin.delete(topic)
    lines = REDIS_CLI_LINES.strip().splitlines()
    for line in (lines[0], lines[1]):
        # Quoted as they stand, `*` and all: the shell finds no file of that name in an empty directory.
        command = line.replace("redis-cli", f"redis-cli -s {server.socket}", 1)
        subprocess.run(["sh", "-fc", command], check=True, stdout=subprocess.DEVNULL, timeout=30)
    (entry,) = await backend.read_new(topic, "g1", "ours", 10, LONG)
    assert isinstance(entry, ClaimedMessage)
    assert entry.message.body == {"content": "hi"}
    assert entry.message.id == foreign_id(topic, b"123")
    assert uuid.UUID(entry.message.id).version == 5
    assert entry.message.headers == {"foreign-id": "123"}
    assert await backend.settle(topic, "g1", "ours", done=[entry]) == Settled(ok=1)
    published = await backend.publish(topic, Message({"content": "from us"}))
    # As a document shows it: an unquoted > would be taken by the shell.
    command = lines[2].replace("redis-cli", f"redis-cli -s {server.socket}", 1).replace(" >", " '>'")
    shown = subprocess.run(["sh", "-fc", command], check=True, stdout=subprocess.PIPE, timeout=30).stdout.decode()
    assert published in shown
    assert '{"content":"from us"}' in shown


async def test_the_redis_py_example_writes_for_us_and_reads_what_we_write(
    server: Server, backend: RedisBackend, admin: "redis.Redis"
) -> None:
    topic = "chat:example"
    admin.delete(topic)
    message = Message({"content": "from us"})
    published = await backend.publish(topic, message)
    await backend.create_group(topic, "ours")
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", REDIS_PY_EXAMPLE.replace("URL", server.url)],
        check=True, stdout=subprocess.PIPE, text=True, timeout=40,
    )  # fmt: skip
    first, second = ran.stdout.splitlines()
    assert first == f"{published} {message.id} {message.body}"
    theirs = second.split()[1]
    assert admin.xpending(topic, "g1")["pending"] == 0  # its reader acked both
    (_, entry) = await backend.read_new(topic, "ours", "c", 10, LONG)
    assert isinstance(entry, ClaimedMessage)
    assert (entry.message.id, entry.message.body, entry.message.headers) == (theirs, {"content": "hello"}, {})


async def test_only_a_payload_is_needed_and_what_we_do_not_know_is_ignored(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    bare = add(admin, topic, "payload", "[1]")
    add(admin, topic, "", "empty name", "payload", '"x"', "colour", b"\xff", "colour", "twice", "type", "")
    add(admin, topic, "payload", "1", "id", "")
    first, second, third = await backend.read_new(topic, "g", "c", 10, NO_WAIT)
    assert isinstance(first, ClaimedMessage)
    assert isinstance(second, ClaimedMessage)
    assert isinstance(third, ClaimedMessage)
    assert (first.message.body, second.message.body, third.message.body) == ([1], "x", 1)
    assert uuid.UUID(first.message.id).version == 5
    (again,) = await backend.read_range(topic, bare, bare, 1)
    assert isinstance(again, ClaimedMessage)
    assert again.message.id == first.message.id
    assert second.raw[:2] == [b"", b"empty name"]
    assert len({first.message.id, second.message.id, third.message.id}) == 3


def many_fields(count: int) -> list[bytes]:
    return [part for n in range(count) for part in (b"f%d" % n, b"v")]


BAD: dict[str, Sequence[bytes]] = {
    "no payload": [b"id", b"7b3ef4a4-5f7b-4b60-a1b0-1d6ddc8ac9c1"],
    "no field we know": [b"data", b"{}"],
    "empty name, empty value": [b"", b""],
    "empty payload": [b"payload", b""],
    "not JSON": [b"payload", b"hello"],
    "not UTF-8": [b"payload", b'"\xff\xfe\x00"'],
    "zero bytes": [b"payload", b"\x00" * 10],
    "a byte order mark": [b"payload", b"\xef\xbb\xbf{}"],
    "a lone surrogate": [b"payload", rb'{"a":"\ud800"}'],
    "raw surrogate bytes": [b"payload", b'"\xed\xa0\x80"'],
    "NaN": [b"payload", b'{"a":NaN}'],
    "Infinity": [b"payload", b"-Infinity"],
    "5,000 digits": [b"payload", b"9" * 5000],
    "100,000 deep": [b"payload", b"[" * 100_000 + b"]" * 100_000],
    "100,000 deep and cut off": [b"payload", b'{"a":' * 100_000],
    "duplicate keys": [b"payload", b'{"a":1,"a":2}'],
    "two documents": [b"payload", b"1 2"],
    "two payloads": [b"payload", b"1", b"payload", b"2"],
    "two ids": [b"id", b"1", b"payload", b"1", b"id", b"2"],
    "headers that are none": [b"payload", b"1", b"headers", b"[]"],
    "time that is none": [b"payload", b"1", b"time", b"yesterday"],
    "a newer wire version": [b"payload", b"1", b"penstock", b"2"],
    "2 MiB": [b"payload", b'"' + b"x" * (2 << 20) + b'"'],
    "65 fields": [b"payload", b"1", *many_fields(64)],
    "1,000 fields": [b"payload", b"1", *many_fields(999)],
    "1,001 fields": [b"payload", b"1", *many_fields(1000)],
    "8,000 fields": [b"payload", b"1", *many_fields(7999)],
    "100,000 fields": [b"payload", b"1", *many_fields(99_999)],
    "our own words": [b"penstock-dead", b"{}", b"penstock-raw", b"x", b"penstock-delivery", b"{}"],
}


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD)
async def test_a_bad_entry_stands_beside_its_neighbours_and_dies_with_every_byte(
    backend: RedisBackend, topic: str, admin: "redis.Redis", raw: Sequence[bytes]
) -> None:
    await backend.create_group(topic, "g")
    await backend.create_group(topic, "other")
    await backend.publish(topic, Message("before"))
    bad = add(admin, topic, *raw)
    await backend.publish(topic, Message("after"))
    first, malformed, last = await backend.read_new(topic, "g", "c", 10, NO_WAIT)
    assert isinstance(first, ClaimedMessage)
    assert isinstance(last, ClaimedMessage)
    assert (first.message.body, last.message.body) == ("before", "after")
    check(malformed, bad, raw)
    letters = [DeadLetter(entry, "no use") for entry in (first, malformed, last)]
    assert await backend.settle(topic, "g", "c", dead=letters) == Settled(ok=3)
    dead = [split_dead(fields) for fields in stored(admin, keys.dead(topic))]
    assert [record.entry for record, _ in dead] == [first.id, bad, last.id]
    assert dead[1][1] == list(raw)
    assert dead[0][1] == list(first.raw)
    assert admin.xpending(topic, "g")["pending"] == 0

    # Another group acks it, and a third consumer finds it with the dead.
    _, malformed, _ = await backend.read_new(topic, "other", "c", 10, NO_WAIT)
    again: list[FetchedEntry] = []
    while len(again) < 3:  # a large one ends a call
        held = [entry.id for entry in again]
        again += await backend.reclaim_idle(topic, "other", "heir", NO_WAIT, 10, running=held)
    check(again[1], bad, raw)
    assert await backend.settle(topic, "other", "heir", done=again) == Settled(ok=3)
    assert await backend.settle(topic, "other", "c", done=[malformed]) == Settled(gone=1, unclear=(malformed.id,))


def check(entry: FetchedEntry, entry_id: str, raw: Sequence[bytes]) -> None:
    assert isinstance(entry, Malformed)
    assert not entry.lost
    assert (entry.id, list(entry.raw)) == (entry_id, list(raw))
    assert entry_id in str(entry.error)
    assert entry.error.reason
    assert len(str(entry.error)) < 1000  # an error is for people; the bytes are in `raw`


async def test_a_whole_page_of_bad_entries_dies_in_one_settle(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    raws = [list(raw) for raw in BAD.values()] * 4
    for raw in raws:
        add(admin, topic, *raw)
    entries = await backend.read_new(topic, "g", "c", 1000, NO_WAIT)
    assert all(isinstance(entry, Malformed) for entry in entries)
    letters = [DeadLetter(entry, "no use") for entry in entries]
    assert await backend.settle(topic, "g", "c", dead=letters) == Settled(ok=len(raws))
    assert [split_dead(fields)[1] for fields in stored(admin, keys.dead(topic))] == raws


@pytest.mark.parametrize("fields", [64, 1000])
async def test_entries_with_as_many_fields_as_the_limit_allows_can_be_parked_and_promoted(
    server: Server, topic: str, admin: "redis.Redis", fields: int
) -> None:
    wire = Wire(limits=Limits(fields=fields))
    async with await RedisBackend.connect(server.url, wire=wire) as backend:
        await backend.create_group(topic, "g")
        await backend.publish(topic, Message("beside"))
        raw = [b"payload", b"1", *many_fields(fields - 1)]
        add(admin, topic, *raw)
        entries = await backend.read_new(topic, "g", "c", 2, NO_WAIT)
        parks = [Park(entry, NO_WAIT, 2) for entry in entries if isinstance(entry, ClaimedMessage)]
        assert await backend.settle(topic, "g", "c", parked=parks) == Settled(ok=2)
        moved, _ = await backend.promote(topic, "g")
        assert moved == 2
        retry = keys.retry(topic, "g")
        _, again = sorted(await backend.read_new(retry, "g", "c", 10, NO_WAIT), key=lambda entry: len(entry.raw))
        assert list(again.raw) == raw
        assert again.state.attempt == 2
        assert await backend.settle(retry, "g", "c", done=[again]) == Settled(ok=1)


def test_no_more_fields_can_be_allowed_than_a_script_can_pass_on() -> None:
    with pytest.raises(ConfigurationError, match="1000"):
        Limits(fields=1001)


async def test_a_parcel_too_large_for_a_script_does_not_promote_its_neighbours_twice(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    await backend.publish(topic, Message("beside"))
    (entry,) = await backend.read_new(topic, "g", "c", 1, NO_WAIT)
    assert isinstance(entry, ClaimedMessage)
    await backend.settle(topic, "g", "c", parked=[Park(entry, NO_WAIT, 2)])
    admin.zadd(keys.parked(topic, "g"), {pack_fields([b"payload", b"1", *many_fields(4500)]): 2**45})
    admin.zadd(keys.parked(topic, "g"), dict.fromkeys(admin.zrange(keys.parked(topic, "g"), 0, -1), 1))
    assert await backend.promote(topic, "g") == (2, None)
    assert await backend.promote(topic, "g") == (0, None)
    assert admin.xlen(keys.retry(topic, "g")) == 1
    assert admin.xlen(keys.dead(topic)) == 1


async def test_a_dead_letter_reads_back_through_json_tools_too(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    add(admin, topic, "payload", b"\xff")
    (entry,) = await backend.read_new(topic, "g", "c", 1, NO_WAIT)
    await backend.settle(topic, "g", "c", dead=[DeadLetter(entry, "why")])
    (fields,) = stored(admin, keys.dead(topic))
    assert json.loads(fields[1])["reason"] == "why"
