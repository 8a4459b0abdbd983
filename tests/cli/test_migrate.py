"""`penstock job migrate`, as a shell sees it."""

import json
import re

import pytest
import redis

from tests.support.command_line import CommandLine
from tests.support.old_queue import OldPrograms
from tests.support.started import Started


@pytest.fixture
def old(client: "redis.Redis") -> OldPrograms:
    return OldPrograms(client)


def counts(text: str) -> dict[str, int]:
    return {what: int(count) for count, what in re.findall(r"^ +([-+\d]+)  (.*)$", text, re.MULTILINE)}


def test_a_migration_says_what_it_did_and_is_quiet_without_a_terminal(penstock: CommandLine, old: OldPrograms) -> None:
    for priority in ("critical", "high", "medium", "low"):
        old.enqueue(priority=priority)
    old.enqueue(scheduled_for="2099-01-01T00:00:00Z")
    old.bury()
    done = penstock("job", "migrate", "mail")
    assert done.err == ""
    assert counts(done.out) == {
        "to {mail}:high": 2,
        "to {mail}:normal": 1,
        "to {mail}:low": 1,
        "waiting for their time": 1,
        "dead letters": 1,
        "in queue:dlq, but tried again since": 0,
        "that cannot be moved": 0,
        "left in queue:main": 0,
        "left in queue:dlq": 0,
        "in active:jobs: left to those who run them": 0,
    }
    again = penstock("job", "migrate", "mail")
    assert counts(again.out)["left in queue:main"] == 0
    assert "to {mail}" not in again.out


def test_what_cannot_be_moved_is_named_and_the_exit_code_is_1(
    penstock: CommandLine, client: "redis.Redis", old: OldPrograms
) -> None:
    id = old.enqueue()
    client.delete(old.keys.records + id)
    for arguments in (("--dry-run",), ()):
        done = penstock("job", "migrate", "mail", *arguments, code=1)
        first, last = done.err.splitlines()
        assert first == f"penstock: job {id} stays where it is: it has no record"
        assert last.startswith("penstock: 1 jobs cannot be moved, and stay in 'queue:main' and 'queue:dlq'")
        assert counts(done.out)["that cannot be moved"] == 1
    assert old.waiting() == [id]


def test_jobs_are_written_as_documents_if_that_is_asked_for(
    penstock: CommandLine, client: "redis.Redis", old: OldPrograms
) -> None:
    id = old.enqueue(kind="k", payload={"n": 1}, metadata={"of": "me"}, timeout_ms=5)
    penstock("job", "migrate", "mail", "--dialect", "job")
    ((_, fields),) = client.xrange("{mail}:normal")
    document = json.loads(fields[b"data"])
    assert fields[b"job_id"].decode() == document["id"] == id
    assert (document["kind"], document["payload"], document["metadata"]) == ("k", {"n": 1}, {"of": "me"})
    assert (document["timeout_ms"], document["status"]) == (5, "queued")


def test_keys_and_bands_can_be_named(penstock: CommandLine, client: "redis.Redis") -> None:
    other = OldPrograms(client, "other:")
    other.enqueue(priority="low")
    names = ("--zset", "other:queue:main", "--records", "other:jobs:", "--dead", "other:queue:dlq")
    done = penstock("job", "migrate", "mail", *names, "--low-from", "9000", "--normal-from", "8000")
    assert counts(done.out)["to {mail}:high"] == 1


def test_on_a_terminal_a_bar_shows_how_far_it_is(penstock: CommandLine, old: OldPrograms) -> None:
    for _ in range(250):
        old.enqueue()
    with Started("job", "migrate", "mail", url=penstock.url, terminal=True, merged=True, TERM="xterm") as moving:
        done = moving.finish()
    assert "moving" in done.out
    assert "250/250" in done.out
    assert " 250  to {mail}:normal" in done.out
