"""What docs/spark.md says an account must be allowed to do is enough, and no right is in it that nothing needs."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from penstock.backend.address import parse
from penstock.errors import PenstockError
from penstock.spark.connection.server import Server as Where
from tests.spark.batch_reads import read
from tests.spark.conftest import ROOT
from tests.spark.engine import Log, add, life, options
from tests.spark.sinking import Writing, numbers_in, rows_for
from tests.support.servers import Server

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
DELIVERIES = ["batch", "fence", "uuid", "explicit_id", "at_least_once"]
PASSWORD, USER = "known", "worker"


def documented() -> dict[str, list[str]]:
    page = Path(ROOT / "docs/spark.md").read_text().partition("## What the account must be allowed to do")[2]
    block = page.split("```")[1].replace("\n    ", " ")
    return {line[: line.index("+")].strip(): line[line.index("+") :].split() for line in block.strip().splitlines()}


@pytest.fixture
def allow(admin: "redis.Redis", monkeypatch: pytest.MonkeyPatch) -> "Iterator[Callable[[list[str]], None]]":
    monkeypatch.setenv("PASSWORD_OF_WORKER", PASSWORD)

    def allow(rights: list[str]) -> None:
        keys = ["~t:*", "~penstock:*"]
        admin.execute_command("ACL", "SETUSER", USER, "reset", "on", f">{PASSWORD}", *keys, *rights)

    yield allow
    admin.execute_command("ACL", "DELUSER", USER)


def denied(admin: "redis.Redis") -> set[str]:
    """Commands that were tried in vain since the last look."""
    found = {row["object"] for row in admin.acl_log()}
    admin.acl_log_reset()
    return found


def write(server: Server, topic: str, delivery: str) -> None:
    """Two batches, one part of which is written again by another attempt."""
    writing = Writing(server, topic, delivery)
    account = Where(parse(server.url.replace("unix://", f"unix://{USER}:{PASSWORD}@")))
    writing.sink = dataclasses.replace(writing.sink, server=account)
    for batch in range(2):
        rows = rows_for(delivery, range(30 * batch, 30 * batch + 30))
        writing.write_and_die(rows.slice(0, 15), batch=batch)
        writing.commit(writing.write(rows, batch=batch))


@BOTH
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_write(
    server: Server, admin: "redis.Redis", topic: str, delivery: str, allow: "Callable[[list[str]], None]",
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    rights = documented()
    allow(rights["any"] + rights[delivery])
    write(server, topic, delivery)
    assert set(numbers_in(admin, topic)) == set(range(60))
    assert denied(admin) <= {"client|setinfo", "info"}
    assert "by scripts" not in caplog.text


@BOTH
@pytest.mark.parametrize("group", [{}, {"group": "g"}])
def test_a_read(
    server: Server, admin: "redis.Redis", topic: str, group: dict[str, str], allow: "Callable[[list[str]], None]"
) -> None:
    rights, ids = documented(), add(admin, topic, 10)
    as_worker = {"username": USER, "passwordEnv": "PASSWORD_OF_WORKER"}
    allow(rights["any"] + rights["streaming read"])
    log = Log()
    with life(options(server, topic, **group, **as_worker, maxEntriesPerTrigger="3", minPartitions="2"), log) as engine:
        engine.run()
    assert log.ids == ids
    allow(rights["any"] + rights["batch read"])
    start = {"startingPosition": "group"} if group else {}
    assert read(server, topic, **group, **start, **as_worker) == ([] if group else ids)
    assert denied(admin) <= {"client|setinfo", "info"}


def test_a_fence_that_must_do_without_transactions_says_so(
    server: Server, admin: "redis.Redis", topic: str, allow: "Callable[[list[str]], None]",
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.WARNING, "penstock.spark")
    rights = documented()
    allow([*rights["any"], *rights["fence"], "-multi"])
    write(server, topic, "fence")
    assert set(numbers_in(admin, topic)) == set(range(60))
    assert (
        f"have no transactions (MULTI, EXEC, XSETID, see docs/spark.md): the rows for '{topic}' go by scripts"
        in caplog.text
    )


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_no_right_to_write_is_asked_for_in_vain(
    server: Server, admin: "redis.Redis", topic: str, delivery: str, allow: "Callable[[list[str]], None]"
) -> None:
    """Without any one of them something is refused."""
    rights = documented()
    for number, one in enumerate(rights[delivery]):
        allow([right for right in rights["any"] + rights[delivery] if right != one])
        denied(admin)
        with contextlib.suppress(PenstockError):
            write(server, f"{topic}:{number}", delivery)
        assert one.removeprefix("+") in denied(admin)
