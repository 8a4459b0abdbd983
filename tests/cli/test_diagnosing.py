"""`penstock doctor`, `why` and `check`: what they print for people and programs, and how they end."""

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import redis

from penstock.app import Penstock
from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, Park
from penstock.diagnosis.diagnosis import DOCTORS
from penstock.message.ids import new_id
from penstock.message.message import Message
from tests.support.command_line import CommandLine

NOW = timedelta(0)
HEALTHY = ("doctor", "--no-machine", "--skip", "persistence")


def prepared(penstock: CommandLine, do: Callable[[Penstock], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with Penstock.connect(penstock.url) as app:
            return await do(app)

    return asyncio.run(run())


def socket_of(penstock: CommandLine) -> str:
    assert penstock.url is not None
    return penstock.url.removeprefix("unix://")


async def orders(app: Penstock, count: int = 3) -> list[Message[Any]]:
    messages = [Message({"n": n}) for n in range(count)]
    await app.backend.create_group("orders", "g")
    await app.backend.register("orders")
    await app.backend.publish_many("orders", messages)
    return messages


def test_the_doctor_finds_what_is_wrong_and_ends_with_1(penstock: CommandLine, client: redis.Redis) -> None:
    done = penstock("doctor", "--no-machine", code=1)
    (row,) = done.rows
    assert (row["level"], row["subject"], row["rule"]) == ("wrong", "server", "persistence")
    assert row["evidence"] == ["appendonly no, save ''"]
    assert row["remedy"] == f"valkey-cli -s {socket_of(penstock)} CONFIG SET appendonly yes"
    assert done.err == "penstock: 1 thing is wrong: each says what mends it\n"


def test_a_healthy_server_is_said_to_be_so_and_ends_with_0(penstock: CommandLine) -> None:
    done = penstock(*HEALTHY)
    assert (done.out, done.err) == ("", f"penstock: {penstock.url}?db=0 is healthy\n")


def test_people_are_told_in_blocks_with_what_is_wrong_first(penstock: CommandLine, client: redis.Redis) -> None:
    client.config_set("tcp-keepalive", 0)
    try:
        out = penstock("doctor", "--no-machine", terminal=True, code=1).out
    finally:
        client.config_set("tcp-keepalive", 300)
    assert out.splitlines()[:5] == [
        "WRONG  server  persistence",
        "       a crash loses everything, though it was acknowledged",
        "         appendonly no, save ''",
        f"       -> valkey-cli -s {socket_of(penstock)} CONFIG SET appendonly yes",
        "          to last, in its configuration file too, or by CONFIG REWRITE",
    ]
    assert out.splitlines()[5] == "note   server  timeouts"


def test_only_rules_that_there_are_can_be_skipped(penstock: CommandLine) -> None:
    assert (
        "there is no rule 'nonsense': there are cluster, cursor-trimmed, dead-cursor, dead-group"
        in penstock.refused("doctor", "--skip", "nonsense", code=2)
    )
    for rule in DOCTORS:
        penstock(*HEALTHY, "--skip", rule)


def test_the_doctor_looks_at_every_topic_and_at_this_machine(
    penstock: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def left(app: Penstock) -> None:
        await orders(app)
        await app.backend.read_new("orders", "g", "gone", 2, NOW)

    prepared(penstock, left)
    assert penstock(*HEALTHY).rows == []
    rows = penstock(*HEALTHY, "--quiet", "1ms", "--abandoned", "1ms", code=1).rows
    assert [(row["subject"], row["rule"]) for row in rows] == [("orders/g", "owner-dead"), ("orders/g", "dead-group")]
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (row,) = (one for one in penstock("doctor", code=1).rows if one["subject"] == "this machine: $SPARK_HOME")
    assert (row["rule"], row["remedy"][:16]) == ("spark", "unset SPARK_HOME")


def test_a_server_that_cannot_be_asked_of_a_message_is_one_line_and_exit_code_4(unreachable: CommandLine) -> None:
    unreachable.refused("why", new_id(), code=4)


@pytest.mark.parametrize(
    "arguments",
    [("why",), ("why", "a", "b"), ("check", "--sample", "0"), ("doctor", "--quiet", "soon"), ("doctor", "x")],
)
def test_what_makes_no_sense_is_one_line_and_exit_code_2(penstock: CommandLine, arguments: tuple[str, ...]) -> None:
    penstock.refused(*arguments, code=2)


def test_what_is_not_there_ends_with_3(penstock: CommandLine) -> None:
    assert "no topic and no queue 'orders'" in penstock.refused("why", "orders", code=3)
    assert "there is no topic 'orders'" in penstock.refused("check", "orders", code=3)
    assert "was found on no topic" in penstock.refused("why", new_id(), code=3)
    prepared(penstock, orders)
    assert "no group 'h'" in penstock.refused("why", "orders/h", code=3)


def test_why_tells_of_a_group_and_of_a_topic(penstock: CommandLine, client: redis.Redis) -> None:
    prepared(penstock, orders)
    client.sadd(keys.paused("orders"), "g")
    for target in ("orders", "orders/g"):
        (row,) = penstock("why", target, code=1).rows
        assert (row["subject"], row["rule"], row["remedy"]) == ("orders/g", "paused", "penstock group resume orders g")
    client.srem(keys.paused("orders"), "g")
    done = penstock("why", "orders/g")
    assert [(row["rule"], row["level"]) for row in done.rows] == [("nobody-reads", "note")], (
        "workers may be about to start"
    )
    assert done.err == "penstock: nothing has kept orders/g for long\n"
    (row,) = penstock("why", "orders/g", "--quiet", "1ms", code=1).rows
    assert (row["rule"], row["level"]) == ("nobody-reads", "wrong")
    client.xgroup_setid("orders", "g", "$")
    done = penstock("why", "orders")
    assert (done.out, done.err) == ("", "penstock: nothing keeps orders\n")


def test_a_group_is_paused_and_resumed(penstock: CommandLine, client: redis.Redis) -> None:
    assert "there is no topic 'orders'" in penstock.refused("group", "pause", "orders", "g", code=3)
    prepared(penstock, orders)
    for then in ("is paused", "was paused already"):
        said = penstock("group", "pause", "orders", "g").out
        assert said == f"Group 'g' of 'orders' {then}, until penstock group resume orders g\n"
    assert client.smembers(keys.paused("orders")) == {b"g"}
    for then in ("is paused no more", "was not paused"):
        assert penstock("group", "resume", "orders", "g").out == f"Group 'g' of 'orders' {then}\n"
        assert client.smembers(keys.paused("orders")) == set()


def test_who_resumes_a_group_by_a_wrong_name_is_told_which_there_are(penstock: CommandLine) -> None:
    prepared(penstock, orders)
    penstock("group", "pause", "orders", "g")
    for wrong in (("group", "resume", "orders", "gg"), ("group", "info", "orders", "gg"), ("why", "orders/gg")):
        assert "topic 'orders' has no group 'gg', only 'g':" in penstock.refused(*wrong, code=3)


def test_a_group_that_is_paused_and_gone_is_resumed(penstock: CommandLine, client: redis.Redis) -> None:
    client.sadd(keys.paused("orders"), "g")
    penstock("group", "resume", "orders", "g")
    assert client.smembers(keys.paused("orders")) == set()


@pytest.mark.parametrize("asked", [("tail",), ("why",), ("topic", "info"), ("dead", "ls"), ("group", "ls")])
def test_a_name_that_was_misspelt_is_met_with_the_one_that_is_like_it(
    penstock: CommandLine, asked: tuple[str, ...]
) -> None:
    prepared(penstock, orders)
    assert penstock.refused(*asked, "oders", code=3).endswith("; did you mean 'orders'?\n")
    assert "did you mean" not in penstock.refused(*asked, "quite-another", code=3)


def test_a_queue_that_was_misspelt_too(penstock: CommandLine) -> None:
    penstock("job", "enqueue", "images", "{}")
    assert penstock.refused("why", "image", code=3).endswith("; did you mean 'images'?\n")
    assert penstock.refused("job", "ls", "image", code=3).endswith("; did you mean 'images'?\n")


def test_the_doctor_notes_groups_that_stand_still_and_what_kills(penstock: CommandLine) -> None:
    async def held_by_many(app: Penstock) -> None:
        await orders(app)
        await app.backend.read_new("orders", "g", "first", 1, timedelta(0))
        for consumer in ("second", "third"):
            (entry,) = await app.backend.reclaim_idle("orders", "g", consumer, timedelta(0), 10)
            await app.backend.mark_start(entry, "g", consumer)  # type: ignore[arg-type] - it is not malformed

    prepared(penstock, held_by_many)
    asked = ("doctor", "--no-machine", "--skip", "persistence")

    def told(*more: str) -> set[tuple[str, str]]:
        rows = penstock(*asked, *more, code=1).rows
        return {(row["rule"], row["level"]) for row in rows if row["subject"] == "orders/g"}

    assert told() == {("poison", "wrong")}  # that nobody reads means nothing yet
    assert ("nobody-reads", "note") in told("--quiet", "1ms")
    penstock("group", "pause", "orders", "g")
    assert told() == {("poison", "wrong"), ("paused", "note")}


def test_a_topic_with_a_slash_in_its_name_is_a_topic(penstock: CommandLine, client: redis.Redis) -> None:
    client.xadd("a/b", {"payload": "{}"})
    assert [row["subject"] for row in penstock("why", "a/b", code=1).rows] == ["a/b"]


def test_why_tells_of_a_message_wherever_it_is(penstock: CommandLine, client: redis.Redis) -> None:
    async def live(app: Penstock) -> list[Message[Any]]:
        messages = await orders(app, 5)
        entries = await app.backend.read_new("orders", "g", "c", 4, NOW)
        assert all(isinstance(entry, ClaimedMessage) for entry in entries)
        dead, parked = DeadLetter(entries[0], "no such customer"), Park(entries[1], timedelta(hours=1), 2)
        await app.backend.settle("orders", "g", "c", done=entries[2:3], dead=[dead], parked=[parked])
        return messages

    dead, parked, done, held, unread = (message.id for message in prepared(penstock, live))
    (row,) = penstock("why", dead, code=1).rows
    letter = client.xrange(keys.dead("orders"))[0][0].decode()
    assert (row["rule"], row["remedy"]) == ("dead", f"penstock dead replay orders {letter} --yes")
    assert "no such customer" in row["evidence"][0]
    assert [row["letter_id"] for row in penstock("trace", dead).rows if row["what"] == "dead"] == [letter]
    assert [row["what"][:50] for row in penstock("why", parked).rows if row["rule"] == "unsettled"] == [
        "the group has not settled it: waits for a retry at"
    ]
    assert [row["rule"] for row in penstock("why", done).rows] == ["settled"]
    rows = penstock("why", held, "--quiet", "1ms", code=1).rows
    assert {"unsettled", "owner-dead"} <= {row["rule"] for row in rows}
    rows = penstock("why", unread, "--quiet", "1ms", code=1).rows
    assert {"unsettled", "nobody-reads"} <= {row["rule"] for row in rows}


def test_a_message_that_no_group_reads_is_kept_by_that(penstock: CommandLine, client: redis.Redis) -> None:
    (receipt,) = penstock("publish", "orders", "1").rows
    (row,) = penstock("why", receipt["id"], code=1).rows
    assert (row["subject"], row["rule"], row["level"]) == ("orders", "no-groups", "wrong")
    (job,) = penstock("job", "enqueue", "mail", "{}").rows
    (row,) = penstock("why", job["id"], code=1).rows
    assert (row["subject"], row["rule"]) == ("{mail}:normal", "no-groups")
    assert row["besides"] == "with app.jobs('mail') and a handler", "a bus would do it beside its queue"
    client.xgroup_create("{mail}:normal", "archive", "0")
    found = [row["subject"] for row in penstock("why", "mail", code=1).rows if row["rule"] == "no-groups"]
    assert found == ["{mail}:normal"], "who copies the lane elsewhere does no job"
    client.hset(keys.cursors("orders"), "copy", "0-0")
    assert penstock("why", receipt["id"]).rows == penstock("why", "orders").rows == [], "who has a cursor reads, too"
    client.xgroup_create("orders", "g", "$")
    assert [row["rule"] for row in penstock("why", receipt["id"]).rows] == ["settled"]


def test_a_job_that_was_hastened_before_the_first_worker_waits_for_one(penstock: CommandLine) -> None:
    (job,) = penstock("job", "enqueue", "mail", "{}", "--delay", "1h").rows
    penstock("job", "run", "mail", job["id"])
    rows = penstock("why", job["id"], code=1).rows
    assert [(row["subject"], row["rule"], row["remedy"]) for row in rows if row["level"] == "wrong"] == [
        ("{mail}:normal/workers", "no-groups", "penstock run MODULE:APP")
    ]
    for target in ("mail", "mail/workers", "{mail}:normal"):
        (row,) = penstock("why", target, code=1).rows
        assert (row["subject"], row["rule"], row["evidence"][0]) == ("{mail}:normal/workers", "no-groups", "1 ready")
    assert "nothing of it for a group 'others'" in penstock.refused("why", "mail/others", code=3)


def test_an_id_is_not_found_because_more_was_there_than_was_looked_at(
    penstock: CommandLine, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.whereabouts.whereabouts.MOST", 100)
    (receipt,) = penstock("publish", "orders", "1").rows
    client.xgroup_create("orders", "g", "$")
    for n in range(101):
        client.xadd(keys.dead("orders"), {"n": n})
    for command in ("trace", "why"):
        assert "'orders' could not be looked at, or not all of it" in penstock.refused(command, new_id(), code=3)
    done = penstock("trace", receipt["id"])
    assert done.rows[-1]["detail"] == f"settled, or in the rest of {keys.dead('orders')}, which was not looked at"
    assert done.err.endswith(f"the rest of what has more than 100 entries, {keys.dead('orders')}\n")


def kept_for_seconds(client: redis.Redis, *, before: int, behind: int) -> str:
    """The id of a message whose maker kept it for three seconds, and so many others of that minute around it."""
    made = 1000 * client.time()[0] - 120_000
    id = str(UUID(int=(made << 80) | (7 << 76) | (2 << 62) | 5))
    client.sadd(keys.TOPICS, "busy")
    client.xgroup_create("busy", "g", "$", mkstream=True)
    for n in range(before):
        client.xadd("busy", {"id": new_id(), "payload": "1"}, id=f"{made + 2500}-{n + 1}")
    client.xadd("busy", {"id": id, "payload": "1"}, id=f"{made + 3000}-0")
    for n in range(behind):
        client.xadd("busy", {"id": new_id(), "payload": "1"}, id=f"{made + 4000}-{n + 1}")
    return id


def test_a_message_is_found_however_many_came_in_the_minute_after_it(
    penstock: CommandLine, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.tail.search.SCANNED", 50)
    id = kept_for_seconds(client, before=10, behind=60)
    for command in ("get", "trace", "why"):
        assert penstock(command, id, code=None).rows, command


@pytest.mark.parametrize("named", [(), ("busy",)])
def test_a_search_that_was_cut_never_says_that_a_message_is_not_there(
    penstock: CommandLine, client: redis.Redis, monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...]
) -> None:
    monkeypatch.setattr("penstock.tail.search.SCANNED", 50)
    id = kept_for_seconds(client, before=60, behind=60)
    for command in ("get", "trace", "why"):
        said = penstock.refused(command, id, *named, code=3)
        assert "'busy' could not be looked at, or not all of it: only " in said, command
        assert "trimmed" not in said

    async def wait(app: Penstock) -> None:
        await app.backend.publish_later("busy", [Message(1, id=id)], delay=timedelta(hours=1))

    prepared(penstock, wait)
    (row,) = penstock("trace", id, *named).rows
    assert row["detail"].startswith("not due before "), "what waits is looked for all the same"


def test_where_no_topic_is_named_little_of_each_is_read(
    penstock: CommandLine, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.tail.search.GLANCED_BYTES", 100)
    id = kept_for_seconds(client, before=20, behind=0)
    assert "only 16 entries from around the time in the id" in penstock.refused("get", id, code=3)
    assert len(penstock("get", id, "busy").rows) == 1


def test_a_message_that_may_be_dead_beyond_what_was_looked_at_is_not_called_settled(
    penstock: CommandLine, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def one_died(app: Penstock) -> str:
        (message,) = await orders(app, 1)
        (entry,) = await app.backend.read_new("orders", "g", "c", 1, NOW)
        for n in range(101):
            client.xadd(keys.dead("orders"), {"n": n})
        await app.backend.settle("orders", "g", "c", dead=[DeadLetter(entry, "no such customer")])
        return message.id

    id = prepared(penstock, one_died)
    assert [row["rule"] for row in penstock("why", id, code=1).rows] == ["dead"]
    monkeypatch.setattr("penstock.whereabouts.whereabouts.MOST", 100)
    done = penstock("why", id, code=1)
    (row,) = done.rows
    assert (row["subject"], row["rule"], row["level"]) == ("orders/g", "unclear", "wrong")
    assert f"in the rest of {keys.dead('orders')}, which was not looked at" in row["what"]
    assert "nothing keeps" not in done.err
    (letter,) = penstock(*shlex.split(row["remedy"])[1:]).rows
    assert (letter["id"], letter["reason"]) == (id, "no such customer")


def test_a_message_that_was_deleted_before_it_was_read_is_not_called_settled(
    penstock: CommandLine, client: redis.Redis
) -> None:
    client.xgroup_create("orders", "g", "0", mkstream=True)
    (receipt,) = penstock("publish", "orders", "1", "--once").rows
    client.xdel("orders", receipt["entry_id"])
    done = penstock("why", receipt["id"], code=1)
    (row,) = done.rows
    assert (row["subject"], row["rule"], row["level"]) == ("orders/g", "lost", "wrong")
    assert receipt["id"] in row["remedy"]
    assert "nothing keeps" not in done.err


def test_a_message_for_later_is_told_of_with_its_time(penstock: CommandLine, client: redis.Redis) -> None:
    (receipt,) = penstock("publish", "orders", "1", "--delay", "1h").rows
    (row,) = penstock("why", receipt["id"]).rows
    assert (row["rule"], row["level"], row["what"][:43]) == (
        "later", "note", "the message is for later: not due before 20",
    )  # fmt: skip
    assert penstock("trace", receipt["id"]).rows[0]["detail"].startswith("not due before ")
    assert [row["rule"] for row in penstock("why", "orders").rows] == ["later"]
    (member,) = client.zrange(keys.later("orders"), 0, 0)
    client.zadd(keys.later("orders"), {member: 1000})
    (row,) = penstock("why", receipt["id"], code=1).rows
    assert (row["rule"], row["remedy"]) == ("later", "penstock run MODULE:APP")


def test_a_queue_whose_jobs_are_all_for_later_is_told_so(penstock: CommandLine) -> None:
    async def enqueue(app: Penstock) -> None:
        await app.jobs("mail").enqueue(Message(1, type="send"), delay=timedelta(hours=1))

    prepared(penstock, enqueue)
    (row,) = penstock("why", "mail").rows
    assert (row["subject"], row["rule"], row["level"]) == ("{mail}:normal/workers", "later", "note")
    assert row["what"].startswith("1 delivery waits for this group, which is not there")
    assert row["evidence"][1].startswith("1 for later, the next due at ")


def test_a_key_of_another_type_keeps_no_message_from_being_found(penstock: CommandLine, client: redis.Redis) -> None:
    (receipt,) = penstock("publish", "orders", "1").rows
    client.set("foo", "bar")
    client.sadd(keys.TOPICS, "foo")
    client.xgroup_create("orders", "g", "$")
    for command in ("get", "trace", "why"):
        done = penstock(command, receipt["id"])
        assert done.err.startswith("penstock: topic 'foo' could not be looked at, or not all of it: "), command
        assert "WRONGTYPE" in done.err
        assert "nothing keeps" not in done.err or done.err.endswith(", as far as it could be looked for\n")
        assert "'foo' could not be looked at" in penstock.refused(command, new_id(), code=3)


def test_a_message_is_looked_for_in_the_dialect_and_on_the_topic_that_are_named(
    penstock: CommandLine, client: redis.Redis
) -> None:
    id = "11111111-2222-4333-8444-555555555555"
    client.xadd("old", {"total": "12", "_id": id})
    client.xgroup_create("old", "g", "$")
    for command in ("get", "trace", "why"):
        penstock.refused(command, id, "new", "old", code=3)
        penstock(command, id, "new", "old", "--dialect", "flat")
    assert {row["topic"] for row in penstock("trace", id, "old", "--dialect", "flat").rows} == {"old"}
    assert "the topics say where" in penstock.refused("why", "orders", "orders", code=2)


def test_a_message_is_found_on_the_partitions_and_lanes_of_what_is_named(penstock: CommandLine) -> None:
    async def publish(app: Penstock) -> tuple[str, str]:
        keyed = app.bus("moves", group="g", partitions=3, ordering="key")
        receipt = await keyed.publish({}, key="k")
        await app.backend.create_group(keyed.partition_for(Message({}, key="k")), "g", "$")
        return receipt.id, str(receipt.entry_id)

    id, entry = prepared(penstock, publish)
    for command in ("get", "trace", "why"):
        penstock(command, id, "moves")
    assert len(penstock("get", entry, "moves").rows) == 1
    (job,) = penstock("job", "enqueue", "mail", "{}").rows
    assert {row["topic"] for row in penstock("trace", job["id"], "mail").rows} == {"{mail}:normal"}
    assert "'moves' is divided: name one of its partitions" in penstock.refused("tail", "moves", code=3)


def test_check_finds_what_does_not_hold_and_is_content_with_the_rest(
    penstock: CommandLine, client: redis.Redis
) -> None:
    assert penstock("check").err == "penstock: everything holds of 0 topics\n"
    prepared(penstock, orders)
    client.sadd(keys.TOPICS, "gone")
    assert penstock("check").err == "penstock: everything holds of 2 topics\n"
    assert penstock("check", "orders", "-o", "table").out == ""
    bad = client.xadd("orders", {"payload": "{not json"}).decode()
    (row,) = penstock("check", "orders", code=1).rows
    assert (row["rule"], row["evidence"][0][: len(bad)]) == ("entries", bad)
    assert (
        penstock("check", "orders", "--sample", "1", code=1).rows[0]["what"] == "1 entry is no message, of 4 looked at"
    )


def test_a_group_whose_name_no_command_takes_keeps_nothing_else_from_being_looked_at(
    penstock: CommandLine, client: redis.Redis
) -> None:
    prepared(penstock, orders)
    client.xgroup_create("orders", "a\nb", "0")
    client.xreadgroup("a\nb", "c", {"orders": ">"}, count=1)
    client.sadd(keys.TOPICS, "zebra")
    client.xadd("zebra", {"payload": "{not json"})
    rows = penstock("check", code=1).rows
    assert [(row["subject"], row["rule"]) for row in rows] == [("zebra", "entries"), ("orders/a\\nb", "unnamed")]
    assert {row["rule"] for row in penstock("why", "orders", code=1).rows} == {"unnamed", "nobody-reads"}
    assert [row["remedy"] for row in penstock(*HEALTHY).rows] == [
        "have its program, which is another one, use another name"
    ]


def test_check_says_what_to_name_instead_of_a_queue_or_a_divided_topic(penstock: CommandLine) -> None:
    async def divided(app: Penstock) -> None:
        await app.bus("moves", group="g", partitions=3, ordering="key").publish({}, key="k")

    penstock("job", "enqueue", "images", "{}")
    prepared(penstock, divided)
    for name, instead in (
        ("images", "one of its lanes, {images}:normal"),
        ("moves", "one of its partitions, moves:p0"),
    ):
        refused = penstock.refused("check", name, code=3)
        assert instead in refused
        assert refused == penstock.refused("topic", "info", name, code=3)
    prepared(penstock, orders)
    assert penstock.refused("check", "oders", code=3).endswith("; did you mean 'orders'?\n")


def test_check_reads_a_topic_in_the_way_it_is_written(penstock: CommandLine, client: redis.Redis) -> None:
    client.sadd(keys.TOPICS, "old")
    client.xadd("old", {"total": "12"})
    assert [row["rule"] for row in penstock("check", "old", code=1).rows] == ["entries"]
    penstock("check", "old", "--dialect", "flat")


def test_a_topic_whose_name_is_as_long_as_can_be_is_looked_at(penstock: CommandLine) -> None:
    topic = "t" * 1024
    (receipt,) = penstock("publish", topic, "1").rows
    assert len(penstock("get", receipt["id"], topic).rows) == 1
    assert [row["rule"] for row in penstock("why", topic, code=1).rows] == ["no-groups"]
