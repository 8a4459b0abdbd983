"""`penstock job migrate`, as a shell sees it."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.old_queue import OldPrograms
from tests.support.servers import Server, valkey_binary

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
DEADLINE = 30.0


@pytest.fixture
def server() -> Iterator[Server]:
    binary = valkey_binary()
    assert binary is not None
    started = Server(binary, Path(tempfile.mkdtemp(prefix="ps-")))
    try:
        yield started
    finally:
        started.stop()
        shutil.rmtree(started.directory)


@pytest.fixture
def old(server: Server) -> Iterator[OldPrograms]:
    with server.client() as client:
        yield OldPrograms(client)


def run(server: Server | None, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_URL"}
    if server is not None:
        environment["PENSTOCK_URL"] = server.url
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def counts(text: str) -> dict[str, int]:
    return {what: int(count) for count, what in re.findall(r"^ +([-+\d]+)  (.*)$", text, re.MULTILINE)}


def test_a_migration_says_what_it_did_and_is_quiet_without_a_terminal(server: Server, old: OldPrograms) -> None:
    for priority in ("critical", "high", "medium", "low"):
        old.enqueue(priority=priority)
    old.enqueue(scheduled_for="2099-01-01T00:00:00Z")
    old.bury()
    done = run(server, "job", "migrate", "mail")
    assert (done.returncode, done.stderr) == (0, "")
    assert counts(done.stdout) == {
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
    again = run(server, "job", "migrate", "mail", "--url", server.url)
    assert counts(again.stdout)["left in queue:main"] == 0
    assert "to {mail}" not in again.stdout


def test_what_cannot_be_moved_is_named_and_the_exit_code_is_1(server: Server, old: OldPrograms) -> None:
    id = old.enqueue()
    with server.client() as client:
        client.delete(old.keys.records + id)
    for arguments in (("--dry-run",), ()):
        done = run(server, "job", "migrate", "mail", *arguments)
        assert done.returncode == 1
        first, last = done.stderr.splitlines()
        assert first == f"penstock: job {id} stays where it is: it has no record"
        assert last.startswith("penstock: 1 jobs cannot be moved, and stay in 'queue:main' and 'queue:dlq'")
        assert counts(done.stdout)["that cannot be moved"] == 1
    assert old.waiting() == [id]


def test_jobs_are_written_as_documents_if_that_is_asked_for(server: Server, old: OldPrograms) -> None:
    id = old.enqueue(kind="k", payload={"n": 1}, metadata={"of": "me"}, timeout_ms=5)
    assert run(server, "job", "migrate", "mail", "--dialect", "job").returncode == 0
    with server.client() as client:
        ((_, fields),) = client.xrange("{mail}:normal")
    document = json.loads(fields[b"data"])
    assert fields[b"job_id"].decode() == document["id"] == id
    assert (document["kind"], document["payload"], document["metadata"]) == ("k", {"n": 1}, {"of": "me"})
    assert (document["timeout_ms"], document["status"]) == (5, "queued")


def test_keys_and_bands_can_be_named(server: Server) -> None:
    with server.client() as client:
        other = OldPrograms(client, "other:")
        other.enqueue(priority="low")
        names = ("--zset", "other:queue:main", "--records", "other:jobs:", "--dead", "other:queue:dlq")
        done = run(server, "job", "migrate", "mail", *names, "--low-from", "9000", "--normal-from", "8000")
    assert counts(done.stdout)["to {mail}:high"] == 1


def test_on_a_terminal_a_bar_shows_how_far_it_is(server: Server, old: OldPrograms) -> None:
    for _ in range(250):
        old.enqueue()
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "job", "migrate", "mail"],
        env={**os.environ, "PENSTOCK_URL": server.url, "TERM": "xterm"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, text=True,
    ) as moving:  # fmt: skip
        os.close(theirs)
        seen = b""
        try:
            while chunk := os.read(ours, 65536):
                seen += chunk
        except OSError:  # how a terminal says that its last program has gone
            pass
        said, _ = moving.communicate(timeout=DEADLINE)
    os.close(ours)
    assert b"moving" in seen
    assert b"250/250" in seen
    assert counts(said)["to {mail}:normal"] == 250
    assert "moving" not in said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("job", "migrate", "mail"), "no server: give --url or --context, or set $PENSTOCK_URL"),
        (("cron", "ls", "chores"), "no server: give --url or --context, or set $PENSTOCK_URL"),
        (("job", "migrate"), "QUEUE"),
        (("job", "migrate", "mail", "--dialect", "x", "--url", "redis://localhost"), "--dialect"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(arguments: tuple[str, ...], complaint: str) -> None:
    done = run(None, *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
