"""Ranges of a real stream: every entry once, in order, whatever its size and whatever happens to the connection."""

import gc
import threading
import time
from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
import pytest
import redis

from penstock.backend.address import Address, parse
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import AuthenticationError, MalformedError, ServerUnreachableError, WrongKeyTypeError
from penstock.spark.entries import fetching
from penstock.spark.entries.columns import Columns
from penstock.spark.entries.ranges import read_counted, walk_ids
from penstock.spark.options.schemas import default_schema
from tests.spark.ddl import schema
from tests.support.servers import Server

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
LAST = "99999999999999-0"


@pytest.fixture
def address(server: Server) -> Address:
    return parse(server.url)


def columns(wanted: str = "entry_id string, fields map<string,binary>", mode: str = "permissive") -> Columns:
    return Columns.of(schema(wanted), layout="raw" if "fields" in wanted else "envelope", dialect="native", mode=mode)


def add(admin: "redis.Redis", topic: str, count: int, size: int = 10) -> list[str]:
    with admin.pipeline(transaction=False) as pipe:
        for number in range(count):
            pipe.xadd(topic, {"payload": b'"%b"' % (b"%d" % number).ljust(size, b".")})
        return [entry_id.decode() for entry_id in pipe.execute()]


def read_pages(address: Address, stream: str, after: str, upto: str, wanted: Columns) -> Iterator[pa.RecordBatch]:
    for _, batch in read_counted(address, stream, after, upto, wanted):
        if batch.num_rows:
            yield batch


def ids(batches: "Iterator[object]") -> list[str]:
    return [entry_id for batch in batches for entry_id in batch.column("entry_id").to_pylist()]  # type: ignore[attr-defined]


@BOTH
def test_a_range_is_open_at_its_start_and_closed_at_its_end(
    address: Address, admin: "redis.Redis", topic: str, server: Server
) -> None:
    added = add(admin, topic, 3000)
    wanted = columns()
    assert ids(read_pages(address, topic, "0-0", LAST, wanted)) == added
    assert ids(read_pages(address, topic, added[9], added[-10], wanted)) == added[10:-9]
    assert ids(read_pages(address, topic, added[0], added[1], wanted)) == [added[1]]
    assert ids(read_pages(address, topic, added[7], added[7], wanted)) == []
    assert ids(read_pages(address, topic, added[-1], LAST, wanted)) == []
    assert ids(read_pages(address, "no such stream", "0-0", LAST, wanted)) == []


def test_ids_are_walked_with_the_size_of_what_they_belong_to(
    address: Address, admin: "redis.Redis", topic: str
) -> None:
    added = add(admin, topic, 2000, 100)
    admin.xadd(topic, {"another": "layout"})
    admin.xadd(topic, {"line": "\r\nbreak"})
    walked = list(walk_ids(address, topic, "0-0", added[-1]))
    assert [entry_id for page, _ in walked for entry_id in page.to_pylist()] == added
    assert 2000 * 110 < sum(size for _, size in walked) < 2000 * 200
    assert sum(len(page) for page, _ in walk_ids(address, topic, "0-0", LAST)) == 2002


@BOTH
def test_pages_shrink_when_entries_grow(
    address: Address, admin: "redis.Redis", topic: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_TOO_MANY_BYTES", 4 << 20)
    added = add(admin, topic, 8000) + add(admin, topic, 60, 300_000) + add(admin, topic, 300)
    sizes, seen = [], []
    for page, size in walk_ids(address, topic, "0-0", LAST):
        sizes.append(size)
        seen += page.to_pylist()
    assert seen == added
    assert max(sizes) < 5 << 20
    assert len(sizes) < 80


def test_an_entry_larger_than_any_page_is_read(address: Address, admin: "redis.Redis", topic: str) -> None:
    admin.xadd(topic, {"small": "x"})
    admin.xadd(topic, {"large": b"\r\n" * (20 << 20)})
    batches = read_pages(address, topic, "0-0", LAST, columns())
    assert [len(fields[0][1]) for batch in batches for fields in batch.column("fields").to_pylist()] == [1, 40 << 20]


@BOTH
def test_a_connection_that_breaks_is_made_again_behind_the_last_page(
    address: Address, admin: "redis.Redis", topic: str, server: Server
) -> None:
    added = add(admin, topic, 20_000, 200)
    reading = read_pages(address, topic, "0-0", LAST, columns())
    seen = ids(islice(reading, 1))
    for batch in reading:
        seen += ids(iter([batch]))
        admin.client_kill_filter(_type="normal", skipme=True)
    assert seen == added


def test_a_server_that_comes_back_is_waited_for(server: Server, topic: str) -> None:
    place = server.directory / "again"
    place.mkdir()
    other = Server(server.binary, place, "--appendonly", "yes", "--appendfsync", "always")
    try:
        with other.client() as client:
            added = add(client, topic, 3000)
        reading = read_pages(parse(other.url), topic, "0-0", LAST, columns())
        seen = ids(islice(reading, 1))
        other.kill()
        started = threading.Timer(0.5, other.start)
        started.start()
        assert seen + ids(reading) == added
        started.join()
    finally:
        other.stop()


def test_a_server_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_PATIENCE_SECONDS", 0.3)
    before = time.monotonic()
    with pytest.raises(ServerUnreachableError, match=r"cannot connect to redis://127\.0\.0\.1:1/0"):
        next(read_pages(parse("redis://127.0.0.1:1"), "t", "0-0", LAST, columns()))
    assert 0.1 < time.monotonic() - before < 30


@pytest.mark.parametrize("wrong", [b"*-1\r\n", b":5\r\n", b"*1\r\n*2\r\n$3\r\n1-1\r\n", b"?\r\n", b"-cut short"])
def test_what_is_not_redis_protocol_is_asked_for_again_on_a_new_connection(
    address: Address, admin: "redis.Redis", topic: str, monkeypatch: pytest.MonkeyPatch, wrong: bytes
) -> None:
    added, links, ends = add(admin, topic, 1000), [], []
    send, receive = BlockingLink.send, BlockingLink.receive

    def noting(link: BlockingLink, request: bytes) -> None:
        ends.append(request[-39:])  # what marks the end of the reply: "$32", and 32 digits
        send(link, request)

    def garbled(link: BlockingLink, buffer: bytearray, filled: int) -> int:
        links.append(link)
        if len(links) > 1:
            return receive(link, buffer, filled)
        buffer[: len(wrong) + 39] = wrong + ends[-1]
        return len(wrong) + 39

    monkeypatch.setattr(BlockingLink, "send", noting)
    monkeypatch.setattr(BlockingLink, "receive", garbled)
    assert ids(read_pages(address, topic, "0-0", LAST, columns())) == added
    assert links[0] not in links[1:]


def test_closing_early_closes_the_connection(address: Address, admin: "redis.Redis", topic: str) -> None:
    add(admin, topic, 5000, 200)
    before = connected(admin)
    reading = read_pages(address, topic, "0-0", LAST, columns())
    next(reading)
    (new,) = connected(admin) - before
    del reading
    gc.collect()
    deadline = time.monotonic() + 30
    while new in connected(admin):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def connected(admin: "redis.Redis") -> set[str]:
    """By their ids: those of a test before may still be leaving."""
    return {client["id"] for client in admin.client_list()}


def test_what_the_server_refuses_is_raised_as_what_it_is(
    address: Address, admin: "redis.Redis", server: Server, topic: str
) -> None:
    admin.set(topic, "no stream")
    with pytest.raises(WrongKeyTypeError, match=f"reading '{topic}' behind 0-0"):
        next(read_pages(address, topic, "0-0", LAST, columns()))
    admin.execute_command("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+xrange", "+hello", "+client")
    reader = parse(f"unix://reader:pw@{server.socket}")
    with pytest.raises(AuthenticationError, match="marking the ends of replies"):
        next(read_pages(reader, topic, "0-0", LAST, columns()))


def test_entries_are_counted_also_where_rows_are_dropped(address: Address, admin: "redis.Redis", topic: str) -> None:
    for number in range(600):
        admin.xadd(topic, {"payload": "{" if number < 400 else "{}"})
    dropping = columns("payload string", "dropmalformed")
    counted = [(entries, batch.num_rows) for entries, batch in read_counted(address, topic, "0-0", LAST, dropping)]
    assert counted == [(250, 0), (350, 200)]
    assert [batch.num_rows for batch in read_pages(address, topic, "0-0", LAST, dropping)] == [200]
    with pytest.raises(MalformedError, match="is malformed: not valid JSON"):
        next(read_pages(address, topic, "0-0", LAST, columns("payload string", "failfast")))


def test_batches_outlive_the_pages_they_were_made_from(address: Address, admin: "redis.Redis", topic: str) -> None:
    added = add(admin, topic, 12_000, 180)
    every = Columns.of(default_schema("envelope"), layout="envelope", dialect="native", mode="permissive")
    batches = list(read_pages(address, topic, "0-0", LAST, every))
    assert len(batches) > 3
    payloads = [row["payload"] for batch in batches for row in batch.to_pylist()]
    assert [int(payload.strip('".')) for payload in payloads] == list(range(len(added)))
