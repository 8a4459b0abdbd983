"""`penstock dead`: what groups gave up is listed, shown, replayed, edited, and thrown away."""

import asyncio
import re
import signal
import stat
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock import Delivery, Penstock, Reject, Retry
from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter
from penstock.events import DeadLettered
from penstock.message.message import Message
from tests.support.command_line import CommandLine
from tests.support.started import Started

NOW = timedelta(0)


def bury(
    penstock: CommandLine, group: str, bodies: Sequence[Any], reason: str = "no use", error: str = ""
) -> list[str]:
    """That many dead letters of topic orders; gives the ids of their messages."""

    async def buried() -> list[str]:
        async with Penstock.connect(penstock.url) as app:
            backend = app.backend
            await backend.register("orders")
            await backend.create_group("orders", group, "$")
            await backend.publish_many("orders", [Message(body, type="Order", key="k") for body in bodies])
            entries = await backend.read_new("orders", group, "c", len(bodies), NOW)
            letters = [DeadLetter(entry, reason, error=error, traceback="line 1\nline 2") for entry in entries]
            await backend.settle("orders", group, "c", dead=letters)
            return [entry.message.id for entry in entries if isinstance(entry, ClaimedMessage)]

    return asyncio.run(buried())


def retried(client: redis.Redis, group: str) -> list[dict[bytes, bytes]]:
    return [fields for _, fields in client.xrange(keys.retry("orders", group))]


def test_letters_of_a_topic_are_listed_and_chosen(penstock: CommandLine) -> None:
    first = bury(penstock, "mail", [1, 2], "ValueError: no", "builtins.ValueError")
    second = bury(penstock, "billing", [3])
    rows = penstock("dead", "ls", "orders").rows
    assert [(row["id"], row["group"], row["reason"], row["attempts"]) for row in rows] == [
        (first[0], "mail", "ValueError: no", 1),
        (first[1], "mail", "ValueError: no", 1),
        (second[0], "billing", "no use", 1),
    ]

    def chosen(*arguments: str) -> list[str]:
        return [row["id"] for row in penstock("dlq", "ls", "orders", *arguments).rows]

    assert chosen("--group", "billing") == chosen("--reason", "use") == second
    assert chosen("--error", "ValueError") == chosen("--error", "builtins.ValueError") == first
    assert chosen("--since", "1h") == chosen("--until", "+1h") == first + second
    assert chosen("--since", "+1h") == chosen("--until", "-1h") == chosen("--group", "none") == []
    assert penstock("dead", "ls").rows == [{"topic": "orders", "dead": 3}]


def test_a_long_list_says_that_there_is_more(penstock: CommandLine) -> None:
    bury(penstock, "mail", range(3))
    done = penstock("dead", "ls", "orders", "--limit", "2")
    assert (len(done.rows), "more than these 2" in done.err) == (2, True)
    assert penstock("dead", "ls", "orders", "--limit", "3").err == ""
    assert "no use" in penstock("dead", "ls", "orders", terminal=True).out


def test_a_topic_that_is_not_there_is_exit_code_3(penstock: CommandLine) -> None:
    for arguments in (
        ("ls",),
        ("show", "1-1"),
        ("replay", "--all"),
        ("purge", "--all"),
        ("edit", "1-1", "--body", "1"),
    ):
        line = penstock.refused("dead", arguments[0], "nosuch", *arguments[1:], code=3)
        assert "there is no topic 'nosuch'" in line


def test_of_a_topic_that_is_divided_the_partitions_are_named(penstock: CommandLine) -> None:
    async def divide() -> None:
        async with Penstock.connect(penstock.url) as app:
            await app.bus("orders", partitions=4, ordering="key").publish({}, key="k")

    asyncio.run(divide())
    for verb in (("ls", "orders"), ("replay", "orders", "--all")):
        line = penstock.refused("dead", *verb, code=3)
        assert "is divided: its dead letters are those of its partitions, 'orders:p0' to 'orders:p3'" in line


def test_one_letter_is_shown_with_its_message(penstock: CommandLine, client: redis.Redis) -> None:
    (id,) = bury(penstock, "mail", [{"n": 1}])
    (seen,) = penstock("dead", "show", "orders", id).rows
    assert (seen["body"], seen["type"], seen["key"], seen["group"]) == ({"n": 1}, "Order", "k", "mail")
    assert seen["traceback"] == "line 1\nline 2"
    assert penstock("dead", "show", "orders", seen["letter_id"]).rows == [seen]
    client.xadd(keys.dead("orders"), {"junk": b"\xff"}, id=f"{2**60}-0")
    (junk,) = penstock("dead", "show", "orders", f"{2**60}-0").rows
    assert junk["fields"] == {"junk": "\\xff"}
    assert "has no dead letter 1-1" in penstock.refused("dead", "show", "orders", "1-1", code=3)


def test_a_replay_is_tried_first_and_then_done(penstock: CommandLine, client: redis.Redis) -> None:
    mail, billing = bury(penstock, "mail", range(5)), bury(penstock, "billing", range(3))
    tried = penstock("dead", "replay", "orders", "--all", code=5)
    assert tried.out.splitlines() == [
        "Would deliver 3 dead letters of 'orders' to group 'billing'",
        "Would deliver 5 dead letters of 'orders' to group 'mail'",
    ]
    assert (client.xlen(keys.dead("orders")), client.exists(keys.retry("orders", "mail"))) == (8, 0)
    (done,) = penstock("dead", "replay", "orders", mail[0], mail[3], "--yes").rows
    assert (done["matched"], done["replayed"], done["gone"], done["refused"]) == (2, 2, 0, 0)
    assert [fields[b"id"].decode() for fields in retried(client, "mail")] == [mail[0], mail[3]]
    penstock("dead", "replay", "orders", "--group", "billing", "--rate", "1000", "-y")
    assert [fields[b"id"].decode() for fields in retried(client, "billing")] == billing
    assert client.xlen(keys.dead("orders")) == 3


def test_an_interrupted_replay_says_how_far_it_came_and_loses_nothing(
    penstock: CommandLine, client: redis.Redis
) -> None:
    bury(penstock, "mail", range(500))
    with Started("dead", "replay", "orders", "--all", "--rate", "20", "--yes", url=penstock.url) as running:
        deadline = time.monotonic() + 40
        while not client.exists(keys.retry("orders", "mail")) and time.monotonic() < deadline:
            time.sleep(0.01)
        running.process.send_signal(signal.SIGINT)
        done = running.finish()
    left, given = client.xlen(keys.dead("orders")), client.xlen(keys.retry("orders", "mail"))
    assert (done.code, left + given, left > 0) == (130, 500, True)
    told = re.fullmatch(r"penstock: interrupted: about ([0-9]+) of 500 dead letters were replayed, .*\n", done.err)
    assert told is not None
    assert given - int(told[1]) in (0, 2)  # it may not have heard of the last ones


def test_what_cannot_be_replayed_is_told_and_stays(penstock: CommandLine, client: redis.Redis) -> None:
    bury(penstock, "mail", [1])
    client.xadd(keys.dead("orders"), {"junk": "1"})
    why = "it cannot be opened, so publish it again from its source: not a dead letter:"
    why += " the first field is not penstock-dead"
    assert penstock("dead", "replay", "orders", "--all", code=5).out.splitlines() == [
        "Would deliver 1 dead letter of 'orders' to group 'mail'",
        f"Would leave 1 dead letter as it is: {why}",
    ]
    done = penstock("dead", "replay", "orders", "--all", "--yes", code=1)
    assert (done.rows[0]["replayed"], done.rows[0]["refused"]) == (1, 1)
    told, last = done.err.splitlines()
    assert told.endswith(f"stays a dead letter: {why}")
    assert last.endswith("1 dead letter of 'orders' cannot be replayed")
    assert client.xlen(keys.dead("orders")) == 1


def test_what_is_replayed_to_a_group_that_was_removed_is_not_out_of_sight(
    penstock: CommandLine, client: redis.Redis
) -> None:
    (id,) = bury(penstock, "mail", [1])
    client.xgroup_delconsumer("orders", "mail", "c")
    penstock("group", "rm", "orders", "mail", "--yes")
    assert (
        "Would have them wait until a worker of group 'mail' runs"
        in penstock("dead", "replay", "orders", "--all", code=5).out
    )
    assert "'orders' has no group 'mail'" in penstock("dead", "replay", "orders", "--all", "--yes").err
    for what, rule in (("orders", "no-groups"), (id, "unsettled")):
        rules = {row["subject"]: row["rule"] for row in penstock("why", what, code=1).rows}
        assert rules["orders/mail"] == rule
    assert "mail" in [row["group"] for row in penstock("trace", id).rows if row["what"] == "now"]


async def test_what_was_read_in_sequence_is_not_said_to_be_replayed(penstock: CommandLine) -> None:
    async with Penstock.connect(penstock.url) as app:
        accounts = app.bus("accounts", group="ledger", partitions=1, ordering="key", retry=Retry(attempts=1))

        @accounts.on(dict)
        async def fail(event: Delivery[dict[str, int]]) -> None:
            raise Reject("no use")

        app.listen(lambda event: app.stop() if isinstance(event, DeadLettered) else None)
        message = await accounts.publish({"n": 1}, key="k")
        await app.run(accounts)
    command = ("dead", "replay", "accounts:p0", "--all")
    tried = await asyncio.to_thread(penstock, *command, code=5)
    why = "reader 'ledger' reads in sequence, where it has no place any more: publish it again"
    assert tried.out == f"Would leave 1 dead letter as it is: {why}\n"
    assert why in (await asyncio.to_thread(penstock, *command, "--yes", code=1)).err
    words = ("dead", "edit", "accounts:p0", message.id, "--body", "{}")
    for yes in ((), ("--yes",)):
        assert why in await asyncio.to_thread(penstock.refused, *words, *yes, code=2)


def test_topics_that_cannot_be_looked_at_are_told_of(penstock: CommandLine, client: redis.Redis) -> None:
    bury(penstock, "mail", [1])
    client.set(keys.cursors("orders"), "x")
    done = penstock("dead", "ls")
    assert (done.out, "'orders' could not be looked at" in done.err) == ("", True)


def test_a_purge_is_tried_first_and_then_done(penstock: CommandLine, client: redis.Redis) -> None:
    ids = bury(penstock, "mail", range(3))
    assert penstock("dead", "purge", "orders", ids[1], code=5).out == (
        "Would destroy 1 dead letter of 'orders', of group 'mail'\n"
    )
    assert client.xlen(keys.dead("orders")) == 3
    assert penstock("dead", "purge", "orders", ids[1], "--yes").rows == [{"topic": "orders", "purged": 1}]
    assert [row["id"] for row in penstock("dead", "ls", "orders").rows] == [ids[0], ids[2]]
    for verb in ("purge", "replay"):
        line = penstock.refused("dead", verb, "orders", ids[0], ids[1], "--yes", code=3)
        assert f"topic 'orders' has no dead letter {ids[1]}: " in line
        assert "has no dead letter of this kind" in penstock.refused("dead", verb, "orders", "--group", "x", code=3)
    assert client.xlen(keys.dead("orders")) == 2
    penstock("dead", "purge", "orders", "--all", "--yes")
    assert client.xlen(keys.dead("orders")) == 0


def test_a_letter_is_edited_by_its_body(penstock: CommandLine, client: redis.Redis, tmp_path: Path) -> None:
    ids = bury(penstock, "mail", [{"n": 1}, {"n": 2}, {"n": 3}])
    file = tmp_path / "body.json"
    file.write_text('{"n": 20}')
    given = (("--body", '{"n": 10}'), ("--file", str(file)), ("-f", "-"))
    for id, body in zip(ids, given, strict=True):
        tried = penstock("dead", "edit", "orders", id, *body, code=5, stdin='{"n": 30}')
        assert (tried.out.startswith("Would deliver dead letter "), tried.out.endswith("'mail' with this body\n")) == (
            True, True,
        )  # fmt: skip
        (done,) = penstock("dead", "edit", "orders", id, *body, "--yes", stdin='{"n": 30}').rows
        assert (done["edited_from"], done["group"], done["id"] != id) == (id, "mail", True)
        last = retried(client, "mail")[-1]
        assert (last[b"id"].decode(), last[b"type"], last[b"key"]) == (done["id"], b"Order", b"k")
        assert id in last[b"headers"].decode()
    assert [fields[b"payload"] for fields in retried(client, "mail")] == [b'{"n":10}', b'{"n":20}', b'{"n":30}']
    assert client.xlen(keys.dead("orders")) == 0


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that stands for a person at an editor."""
    script = tmp_path / "editor"
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{script} -x")
    return script


def acts(editor: Path, command: str) -> None:
    editor.write_text(f'#!/bin/sh\n[ "$1" = -x ] || exit 9\n{command}\n')
    editor.chmod(stat.S_IRWXU)


def test_a_letter_is_edited_in_an_editor(penstock: CommandLine, client: redis.Redis, editor: Path) -> None:
    (id,) = bury(penstock, "mail", [{"total": -1}])
    acts(editor, "true")
    assert penstock("dead", "edit", "orders", id).out == "Nothing was changed.\n"
    acts(editor, "exit 3")
    assert "ended with exit code 3" in penstock.refused("dead", "edit", "orders", id, code=1)
    acts(editor, 'rm "$2"')
    assert "left no file" in penstock.refused("dead", "edit", "orders", id, code=1)
    acts(editor, 'echo "{oops" > "$2"')
    told, line = penstock("dead", "edit", "orders", id, code=2).err.splitlines()
    assert "cannot be read as JSON" in line
    kept = Path(told.partition("--file ")[2])
    assert kept.read_text() == "{oops\n"
    kept.unlink()
    assert client.xlen(keys.dead("orders")) == 1
    acts(editor, 'sed -i s/-1/1/ "$2"')
    penstock("dead", "edit", "orders", id)
    assert [fields[b"payload"] for fields in retried(client, "mail")] == [b'{"total":1}']


def test_bytes_are_edited_as_they_are(penstock: CommandLine, client: redis.Redis, editor: Path) -> None:
    (id,) = bury(penstock, "mail", [b"plain \xff"])
    acts(editor, 'LC_ALL=C sed -i s/plain/other/ "$2"')
    penstock("dead", "edit", "orders", id)
    assert [fields[b"payload"] for fields in retried(client, "mail")] == [b"other \xff"]


def test_a_message_that_several_groups_gave_up_is_edited_for_one(penstock: CommandLine, client: redis.Redis) -> None:
    (id,) = bury(penstock, "mail", [1])
    ((letter, fields),) = client.xrange(keys.dead("orders"))
    client.xadd(keys.dead("orders"), {name: value.replace(b'"mail"', b'"other"') for name, value in fields.items()})
    line = penstock.refused("dead", "edit", "orders", id, "--body", "2", code=2)
    assert f"{letter.decode()} (group 'mail')" in line
    penstock("dead", "edit", "orders", id, "--body", "2", "--group", "other", "-y")
    assert (len(retried(client, "mail")), len(retried(client, "other"))) == (0, 1)


def test_what_was_written_in_an_editor_is_kept_if_it_comes_to_nothing(
    penstock: CommandLine, client: redis.Redis, editor: Path
) -> None:
    (id,) = bury(penstock, "mail", [1])
    acts(editor, f'echo 2 > "$2"; {Path(sys.executable).with_name("penstock")} dead purge orders --all --yes >&2')
    told, line = penstock("dead", "edit", "orders", id, code=3).err.splitlines()
    assert "was replayed or purged meanwhile" in line
    kept = Path(told.partition("--file ")[2])
    assert kept.read_text() == "2\n"
    kept.unlink()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("replay", "orders"), "say which dead letters"),
        (("purge", "orders", "--yes"), "say which dead letters"),
        (("replay", "orders", "1-1", "--all"), "leave out ids"),
        (("replay", "orders", "--all", "--rate", "0"), "--rate"),
        (("replay", "orders", "--all", "--rate", "nan"), "--rate"),
        (("show", "orders", "1-1", "--dialect", "jobs"), "--dialect"),
        (("ls", "--group", "g"), "name a topic"),
        (("ls", "--limit", "1"), "name a topic"),
        (("ls", "--dialect", "flat"), "name a topic"),
        (("ls", "orders", "--limit", "0"), "--limit"),
        (("ls", "orders", "--since", "soon"), "no moment"),
        (("show", "orders"), "ID"),
    ],
)
def test_bad_usage_is_one_line(penstock: CommandLine, arguments: tuple[str, ...], complaint: str) -> None:
    assert complaint in penstock.refused("dead", *arguments, code=2)


def test_what_is_no_json_or_no_file_is_refused(
    penstock: CommandLine, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    (id,) = bury(penstock, "mail", [1])
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    assert "set $EDITOR" in penstock.refused("dead", "edit", "orders", id, code=2)
    monkeypatch.setenv("VISUAL", " ")
    assert "set $EDITOR" in penstock.refused("dead", "edit", "orders", id, code=2)
    monkeypatch.setenv("EDITOR", 'vi "')
    assert "cannot be started: No closing quotation" in penstock.refused("dead", "edit", "orders", id, code=1)
    assert "cannot be read as JSON" in penstock.refused("dead", "edit", "orders", id, "--body", "{", code=2)
    assert "No such file" in penstock.refused("dead", "edit", "orders", id, "--file", "/nonexistent", code=2)
    assert "given twice" in penstock.refused("dead", "edit", "orders", id, "--body", "1", "--file", "x", code=2)
    assert client.xlen(keys.dead("orders")) == 1
