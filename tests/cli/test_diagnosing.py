"""`penstock doctor`, `why` and `check`: what they print for people and programs, and how they end."""

import asyncio
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

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
    assert row["remedy"].startswith("valkey-cli CONFIG SET appendonly yes")
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
    assert out.splitlines()[:4] == [
        "WRONG  server  persistence",
        "       a crash loses everything, though it was acknowledged",
        "         appendonly no, save ''",
        "       -> valkey-cli CONFIG SET appendonly yes (and in its configuration file, or by CONFIG REWRITE)",
    ]
    assert out.splitlines()[4] == "note   server  timeouts"


def test_only_rules_that_there_are_can_be_skipped(penstock: CommandLine) -> None:
    assert "there is no rule 'nonsense': there are dead-group, disk" in penstock.refused(
        "doctor", "--skip", "nonsense", code=2
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


@pytest.mark.parametrize("arguments", [("doctor",), ("why", "orders"), ("why", new_id()), ("check",)])
def test_a_server_that_cannot_be_reached_is_one_line_and_exit_code_4(
    unreachable: CommandLine, arguments: tuple[str, ...]
) -> None:
    unreachable.refused(*arguments, code=4)


@pytest.mark.parametrize(
    "arguments",
    [("why",), ("why", "a", "b"), ("check", "--sample", "0"), ("doctor", "--quiet", "soon"), ("doctor", "x")],
)
def test_what_makes_no_sense_is_one_line_and_exit_code_2(penstock: CommandLine, arguments: tuple[str, ...]) -> None:
    penstock.refused(*arguments, code=2)


def test_what_is_not_there_ends_with_3(penstock: CommandLine) -> None:
    assert "no topic and no queue 'orders'" in penstock.refused("why", "orders", code=3)
    assert "there is no topic 'orders'" in penstock.refused("check", "orders", code=3)
    assert "is on no topic" in penstock.refused("why", new_id(), code=3)
    prepared(penstock, orders)
    assert "no group 'h'" in penstock.refused("why", "orders/h", code=3)


def test_why_tells_of_a_group_and_of_a_topic(penstock: CommandLine, client: redis.Redis) -> None:
    prepared(penstock, orders)
    client.sadd(keys.paused("orders"), "g")
    for target in ("orders", "orders/g"):
        (row,) = penstock("why", target, code=1).rows
        assert (row["subject"], row["rule"], row["remedy"]) == ("orders/g", "paused", "penstock group resume orders g")
    client.srem(keys.paused("orders"), "g")
    assert [row["rule"] for row in penstock("why", "orders/g", code=1).rows] == ["nobody-reads"]
    client.xgroup_setid("orders", "g", "$")
    done = penstock("why", "orders")
    assert (done.out, done.err) == ("", "penstock: nothing keeps orders\n")


def test_a_group_is_paused_and_resumed(penstock: CommandLine, unreachable: CommandLine, client: redis.Redis) -> None:
    assert "no group 'g'" in penstock.refused("group", "pause", "orders", "g", code=3)
    prepared(penstock, orders)
    penstock("group", "pause", "orders", "g")
    assert client.smembers(keys.paused("orders")) == {b"g"}
    for _ in range(2):
        penstock("group", "resume", "orders", "g")
        assert client.smembers(keys.paused("orders")) == set()
    for verb in ("pause", "resume"):
        unreachable.refused("group", verb, "orders", "g", code=4)
        penstock.refused("group", verb, "orders", code=2)


def test_what_mends_it_does(penstock: CommandLine, client: redis.Redis) -> None:
    """Remedies that are commands of ours are run as they are written."""

    async def stuck(app: Penstock) -> list[str]:
        await orders(app, 4)
        return [entry.id for entry in await app.backend.read_new("orders", "g", "gone", 3, NOW)]

    ids = prepared(penstock, stuck)
    client.xdel("orders", ids[0])
    client.srem(keys.TOPICS, "orders")
    client.sadd(keys.paused("orders"), "g")
    mend(penstock, "paused", "why", "orders")
    mend(penstock, "ghosts", "why", "orders", "--quiet", "1ms")
    mend(penstock, "registry", "check", "orders")
    words = remedy(penstock, "owner-dead", "why", "orders", "--quiet", "1ms")
    # Unless told, it minds only those who were silent for longer than a test takes.
    assert penstock(*words, "--idle", "1ms").out == "2 entries of 'orders' are free for the workers of group 'g'\n"


def remedy(penstock: CommandLine, rule: str, *command: str) -> list[str]:
    (row,) = (row for row in penstock(*command, code=1).rows if row["rule"] == rule)
    return shlex.split(row["remedy"].rpartition("penstock ")[2])


def mend(penstock: CommandLine, rule: str, *command: str) -> None:
    penstock(*remedy(penstock, rule, *command))
    else_wrong = 0 if command[0] == "check" else 1
    assert rule not in [row["rule"] for row in penstock(*command, code=else_wrong).rows]


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
    assert (row["rule"], row["remedy"].partition(": ")[2]) == ("dead", f"penstock dead replay orders {letter} --yes")
    assert "no such customer" in row["evidence"][0]
    assert [row["what"][:50] for row in penstock("why", parked).rows if row["rule"] == "unsettled"] == [
        "the group has not settled it: waits for a retry at"
    ]
    assert [row["rule"] for row in penstock("why", done).rows] == ["settled"]
    rows = penstock("why", held, "--quiet", "1ms", code=1).rows
    assert {"unsettled", "owner-dead"} <= {row["rule"] for row in rows}
    rows = penstock("why", unread, "--quiet", "1ms", code=1).rows
    assert {"unsettled", "nobody-reads"} <= {row["rule"] for row in rows}


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
        penstock("check", "orders", "--sample", "1", code=1).rows[0]["what"] == "1 entry of 4 looked at are no messages"
    )


def test_check_reads_a_topic_in_the_way_it_is_written(penstock: CommandLine, client: redis.Redis) -> None:
    client.sadd(keys.TOPICS, "old")
    client.xadd("old", {"total": "12"})
    assert [row["rule"] for row in penstock("check", "old", code=1).rows] == ["entries"]
    penstock("check", "old", "--dialect", "flat")


def test_a_reader_that_leaves_early_is_told_nothing(penstock: CommandLine) -> None:
    command = "from penstock.cli.main import main; main()"
    done = subprocess.run(
        f"{sys.executable} -c '{command}' doctor --no-machine --url {penstock.url} | true; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", stderr=subprocess.PIPE, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert (done.returncode in (1, 141), "Traceback" in done.stderr) == (True, False)
