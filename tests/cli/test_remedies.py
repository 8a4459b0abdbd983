"""What `why`, `doctor` and `check` say mends a finding does: the condition is made, the remedy run as it is written."""

import json
import shlex
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from penstock import Cursor, Penstock, Priority
from penstock.backend import keys
from penstock.backend.entry import Park
from penstock.message.message import Message
from penstock.message.wire import Wire
from tests.support.command_line import CommandLine
from tests.support.remedies import commands, filled, pasted, prepared, told

NOW = timedelta(0)
AT_ONCE = ("--quiet", "1ms")
DOCTOR = ("doctor", "--no-machine", "--skip", "persistence", *AT_ONCE)
DAYS = 86_400_000
ONLY_TRIED = 5


async def orders(app: Penstock, count: int = 4) -> list[str]:
    await app.backend.create_group("orders", "g")
    await app.backend.register("orders")
    return [str(id) for id in await app.backend.publish_many("orders", [Message({"n": n}) for n in range(count)])]


async def held(app: Penstock, count: int = 2) -> list[str]:
    ids = await orders(app)
    await app.backend.read_new("orders", "g", "gone", count, NOW)
    return ids


def mend(penstock: CommandLine, rule: str, *asking: str, **values: str) -> list[str]:
    """Run the last command of each finding, which is the one that changes something, with its words in capitals filled
    in, and see the finding gone. One that only says what it would do is run once more, and told to."""
    rows = told(penstock, rule, *asking)
    assert rows, f"there is no finding of {rule}"
    for row in rows:
        words = filled(commands(row)[-1], **values)
        if penstock(*words, code=None).code == ONLY_TRIED:
            penstock(*words, "--yes")
    assert told(penstock, rule, *asking) == []
    return [row["remedy"] for row in rows]


def test_paused(penstock: CommandLine, client: redis.Redis) -> None:
    prepared(penstock, orders)
    client.sadd(keys.paused("orders"), "g")
    mend(penstock, "paused", "why", "orders")


def test_retries_later(penstock: CommandLine) -> None:
    async def parked(app: Penstock) -> None:
        await orders(app, 2)
        entries = await app.backend.read_new("orders", "g", "c", 2, NOW)
        await app.backend.settle("orders", "g", "c", parked=[Park(one, timedelta(hours=1), 2) for one in entries])

    prepared(penstock, parked)
    (row,) = told(penstock, "retries-later", "why", "orders")
    penstock(*commands(row)[0])
    assert told(penstock, "retries-later", "why", "orders") == []


def test_what_has_not_failed_is_not_said_to_be_tried_at_once(penstock: CommandLine) -> None:
    async def snoozed(app: Penstock) -> None:
        await orders(app, 1)
        entries = await app.backend.read_new("orders", "g", "c", 1, NOW)
        await app.backend.settle("orders", "g", "c", parked=[Park(one, timedelta(hours=1), 1) for one in entries])

    prepared(penstock, snoozed)
    (row,) = told(penstock, "retries-later", "why", "orders")
    assert row["remedy"] == "wait until it is due"


def test_owner_dead(penstock: CommandLine) -> None:
    """The leases end, and that nobody reads is told until a worker takes them over."""
    prepared(penstock, held)
    (row,) = told(penstock, "owner-dead", "why", "orders", *AT_ONCE)
    assert penstock(*commands(row)[-1]).out == "2 entries of 'orders' are free for the workers of group 'g'\n"
    rows = penstock("why", "orders", code=1).rows
    assert [row["rule"] for row in rows] == ["nobody-reads"], "whose leases were ended by hand is not alive by that"
    assert rows[0]["evidence"][0] == "the leases of consumer gone were ended: 2 entries wait to be taken over"

    async def take(app: Penstock) -> int:
        return len(await app.backend.reclaim_idle("orders", "g", "new", timedelta(seconds=30), 10))

    assert prepared(penstock, take) == 2
    assert told(penstock, "owner-dead", "why", "orders", "--quiet", "1m") == []


def test_ghosts(penstock: CommandLine, client: redis.Redis) -> None:
    ids = prepared(penstock, lambda app: held(app, 4))
    client.xdel("orders", *ids[:3])
    mend(penstock, "ghosts", "why", "orders")
    prepared(penstock, lambda app: held(app, 20))
    client.xtrim("orders", maxlen=0, approximate=False)
    mend(penstock, "ghosts", "check", "orders")


def test_poison(penstock: CommandLine) -> None:
    """On the topic, and among the retries: it can be seen where it is, and settled."""

    async def handed_out(app: Penstock) -> None:
        ids = await held(app, 2)
        entries = await app.backend.reclaim_idle("orders", "g", "c0", NOW, 2)
        await app.backend.settle("orders", "g", "c0", parked=[Park(entries[1], NOW, 2)])  # type: ignore[arg-type]
        await app.backend.promote("orders", "g")
        retries = keys.retry("orders", "g")
        await app.backend.read_new(["orders", retries], "g", "c1", 10, NOW)
        for consumer in ("c2", "c3"):
            for stream in ("orders", retries):
                (entry,) = await app.backend.reclaim_idle(stream, "g", consumer, NOW, 1)
                await app.backend.mark_start(entry, "g", consumer)  # type: ignore[arg-type] - it is not malformed
        assert len(ids) == 4

    prepared(penstock, handed_out)
    rows = told(penstock, "poison", "why", "orders")
    assert len(rows) == 2
    assert [row["evidence"][1:] for row in rows] == [[], ["1 attempt before that failed"]]
    for row, n in zip(rows, (0, 1), strict=True):
        see = commands(row)[0]
        assert penstock(*see).rows[0]["body"] == {"n": n}
    mend(penstock, "poison", "why", "orders")


def test_an_entry_that_was_begun_too_often_is_forgotten_when_it_is_marked_as_done(
    penstock: CommandLine, client: redis.Redis
) -> None:
    """Its start-marks would be there for ever: nobody comes to it any more."""

    async def begun(app: Penstock) -> str:
        (id, *_) = await held(app, 1)
        (entry,) = await app.backend.reclaim_idle("orders", "g", "c", NOW, 1)
        await app.backend.mark_start(entry, "g", "c")  # type: ignore[arg-type] - it is not malformed
        return id

    id = prepared(penstock, begun)
    assert client.hlen(keys.starts("orders", "g")) == 1
    penstock("group", "ack", "orders", "g", id, "--yes")
    assert client.hlen(keys.starts("orders", "g")) == 0


def test_unreadable(penstock: CommandLine) -> None:
    """That a sequence is written in another way is no fault, and whoever knows in which way sees that all is well."""

    async def changes(app: Penstock) -> None:
        app.use_wire("orders", Wire("cloudevents"))
        async with app.changes("orders", of=dict, reader="ledger") as changes:
            await changes.publish({"n": 1})
            await changes.recv()

    prepared(penstock, changes)
    asked = penstock(*DOCTOR)
    assert {row["level"] for row in asked.rows} == {"note"}
    (row,) = told(penstock, "unreadable", *DOCTOR)
    words = ["cloudevents" if word == "DIALECT" else word for word in shlex.split(row["remedy"])[1:]]
    assert told(penstock, "poison", *words) == []
    (row,) = told(penstock, "poison", *words[:2])
    assert "ask again with --dialect" in row["besides"]


def test_dead_group(penstock: CommandLine) -> None:
    prepared(penstock, orders)
    mend(penstock, "dead-group", *DOCTOR, "--abandoned", "1ms")


def test_dead_cursor(penstock: CommandLine, client: redis.Redis) -> None:
    (id, *_) = prepared(penstock, orders)
    client.hset(keys.cursors("orders"), mapping={"copy": id, "odd": "nowhere"})
    assert told(penstock, "dead-cursor", *DOCTOR) == []
    (row,) = told(penstock, "dead-cursor", *DOCTOR, "--abandoned", "1ms")
    assert row["besides"] == "if nobody needs it any more: penstock cursor rm orders copy"
    penstock(*commands(row)[-1], "--yes")
    assert told(penstock, "dead-cursor", *DOCTOR, "--abandoned", "1ms") == []


def test_a_cursor_that_catches_up_is_not_called_dead(penstock: CommandLine, client: redis.Redis) -> None:
    """Its reader committed a moment ago; what it comes to next is old all the same."""
    seconds, _ = client.time()
    for n in range(3):
        client.xadd("orders", {"payload": "{}"}, id=f"{1000 * seconds - 3 * DAYS}-{n + 1}")
    client.sadd(keys.TOPICS, "orders")

    async def read_one(app: Penstock) -> None:
        async with app.tail("orders", after=Cursor("copy", start="earliest")) as tail:
            assert await (await anext(aiter(tail))).commit()  # type: ignore[union-attr] - it is no gap

    prepared(penstock, read_one)
    (row,) = penstock(*DOCTOR).rows
    assert (row["rule"], row["level"]) == ("dead-cursor", "note")
    assert row["what"].endswith("the next entry for it is 3d old")
    assert "--yes" not in row["remedy"] + row["besides"]


def test_untrimmed(penstock: CommandLine, client: redis.Redis) -> None:
    seconds, _ = client.time()
    for n in range(250):
        client.xadd("orders", {"payload": "{}"}, id=f"{1000 * seconds - 3 * DAYS}-{n + 1}")
    client.sadd(keys.TOPICS, "orders")
    client.xgroup_create("orders", "g", id="$")
    mend(penstock, "untrimmed", *DOCTOR)


def test_dead(penstock: CommandLine) -> None:
    penstock("publish", "orders", "1")

    async def died(app: Penstock) -> str:
        from penstock.backend.entry import DeadLetter

        await app.backend.create_group("orders", "g")
        (entry,) = await app.backend.read_new("orders", "g", "c", 1, NOW)
        await app.backend.settle("orders", "g", "c", dead=[DeadLetter(entry, "no such customer")])
        return entry.message.id  # type: ignore[union-attr]

    mend(penstock, "dead", "why", prepared(penstock, died))


def test_starved(penstock: CommandLine, client: redis.Redis) -> None:
    """The job is urgent now; its lane is told of until a worker passes the place where it was."""

    async def jobs(app: Penstock) -> str:
        queue = app.jobs("mail")
        await queue.enqueue(Message(1, type="send"))
        low = await queue.enqueue(Message(2, type="send"), priority=Priority.LOW)
        for lane in queue.topics:
            await app.backend.create_group(lane, "workers")
        return low.id

    id = prepared(penstock, jobs)
    (row,) = (
        row for row in told(penstock, "starved", "why", "mail", *AT_ONCE) if row["subject"] == "{mail}:low/workers"
    )
    words = [id if word == "ID" else word for word in commands(row)[-1]]
    penstock(*words)
    assert client.xlen("{mail}:high") == 1


def test_registry_and_a_pause_of_nobody(penstock: CommandLine, client: redis.Redis) -> None:
    prepared(penstock, orders)
    client.srem(keys.TOPICS, "orders")
    client.sadd(keys.paused("orders"), "nobody")
    mend(penstock, "registry", "check", "orders")
    mend(penstock, "notes", "check", "orders")


def test_positions(penstock: CommandLine, client: redis.Redis) -> None:
    """Of a group, of cursors that are ahead or hold nonsense, and of a reader in sequence."""
    prepared(penstock, orders)
    client.xgroup_setid("orders", "g", "9999999999999-0")
    client.hset(keys.cursors("orders"), mapping={"lake": "9999999999999-1", "odd": "nowhere"})

    async def read(app: Penstock) -> None:
        async with app.changes("orders", of=dict, reader="ledger") as changes:
            await (await changes.recv()).ack()

    prepared(penstock, read)
    client.xgroup_setid("orders", "ledger", "9999999999999-0")
    assert len(mend(penstock, "positions", "check", "orders", MOMENT="1h")) == 4
    rows = {row["cursor"]: row for row in penstock("cursor", "ls", "orders").rows}
    assert (rows["lake"]["behind"], rows["odd"]["entry_id"]) == (4, "0-0")


def test_what_came_while_a_group_or_a_cursor_stood_ahead_is_not_lost_to_it(
    penstock: CommandLine, client: redis.Redis
) -> None:
    prepared(penstock, orders)
    client.xgroup_setid("orders", "g", "9999999999999-0")
    client.hset(keys.cursors("orders"), "copy", "9999999999999-1")
    came = [client.xadd("orders", {"payload": "{}"}).decode() for _ in range(2)]
    mend(penstock, "positions", "check", "orders", MOMENT="1h")

    async def given(app: Penstock) -> tuple[list[str], list[str]]:
        entries = await app.backend.read_new("orders", "g", "c", 10, NOW)
        async with app.tail("orders", after=Cursor("copy")) as tail:
            following = aiter(tail)
            seen = [await anext(following) for _ in entries]
        return [entry.id for entry in entries], [one.entry_id for one in seen]  # type: ignore[union-attr] - it is no gap

    of_group, of_cursor = prepared(penstock, given)
    assert of_group == of_cursor
    assert of_group[-2:] == came


def test_dead_letters_that_cannot_be_opened(penstock: CommandLine, client: redis.Redis) -> None:
    """What is left of one is shown; all are thrown away when that is said."""
    prepared(penstock, orders)
    for _ in range(7):
        client.xadd(keys.dead("orders"), {"what": "is this"})
    (row,) = told(penstock, "dead", "check", "orders")
    purge, show = commands(row)
    assert "is this" in penstock(*show).out
    assert "destroy 7 dead letters" in penstock(*purge, code=ONLY_TRIED).out
    penstock(*purge, "--yes")
    assert told(penstock, "dead", "check", "orders") == []


def dead_letter(client: redis.Redis, group: str, days_ago: float) -> str:
    seconds, _ = client.time()
    at = datetime.fromtimestamp(seconds, UTC) - timedelta(days=days_ago)
    record = {"topic": "orders", "group": group, "entry": "1-1", "attempts": 1, "reason": "r"}
    record |= {"first": at.isoformat(), "last": at.isoformat()}
    kept = {"penstock-dead": json.dumps(record), "payload": "1"}
    return client.xadd(keys.dead("orders"), kept, id=f"{int(1000 * at.timestamp())}-1").decode()


def test_dead_letters_that_are_too_old(penstock: CommandLine, client: redis.Redis) -> None:
    """Only these are thrown away: not those that are to be kept, of other groups or of the same."""
    penstock("publish", "orders", "1")
    dead_letter(client, "g", 40)
    kept = [dead_letter(client, "g", 20), dead_letter(client, "h", 1)]
    mend(penstock, "dead", "check", "orders")
    assert [id.decode() for id, _ in client.xrange(keys.dead("orders"))] == kept


@pytest.mark.needs("redis-cli")
@pytest.mark.parametrize("rule", ["types", "topic"])
def test_keys_of_another_type(penstock: CommandLine, client: redis.Redis, rule: str) -> None:
    penstock("publish", "orders", "1")
    key = keys.parked("orders", "g") if rule == "types" else "orders"
    if rule == "types":
        client.xgroup_create("orders", "g", id="$")
    client.delete(key)
    client.set(key, "no such thing")
    asking = ("check", "orders") if rule == "types" else DOCTOR
    (row,) = told(penstock, rule, *asking)
    renamed = pasted(row["remedy"].replace("NEWNAME", "elsewhere"))
    assert (renamed, client.get("elsewhere")) == ("1", b"no such thing")
    assert told(penstock, rule, *asking) == []


@pytest.mark.needs("redis-cli")
def test_a_name_that_no_topic_can_have(penstock: CommandLine, client: redis.Redis) -> None:
    client.sadd(keys.TOPICS, "penstock:no topic")
    (row,) = told(penstock, "topic", *DOCTOR)
    assert [one["remedy"] for one in told(penstock, "registry", "check")] == [row["remedy"]]
    assert pasted(row["remedy"]) == "1"
    assert told(penstock, "topic", *DOCTOR) == []


@pytest.mark.needs("sh")
@pytest.mark.parametrize(("version", "fits"), [("3.0.0", False), ("2.1.4", False), ("2.3.3", True)])
def test_a_pandas_that_spark_cannot_use(
    penstock: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, fits: bool
) -> None:
    """Only what is noted of an installed package is looked at: this one stands before the real one."""
    noted = tmp_path / f"pandas-{version}.dist-info"
    noted.mkdir()
    (noted / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pandas\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = [row for row in told(penstock, "spark", "doctor") if row["subject"] == "this machine: pandas"]
    if fits:
        assert found == []
        return
    (row,) = found
    assert (row["level"], row["what"]) == ("wrong", version)
    assert row["remedy"] == "pip install 'penstock[spark]'"
    assert row["besides"] == "it takes 2.2 or newer, older than 3"
    assert subprocess.run(["sh", "-n", "-c", row["remedy"]], check=False).returncode == 0, "it can be pasted"
