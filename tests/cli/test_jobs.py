"""`penstock job`: enqueued, listed, shown, cancelled, retried, moved, held and waited for."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock import JobDelivery, JobQueue, Penstock, Reject, Retry
from penstock.backend import keys
from penstock.message.ids import new_id
from tests.support.command_line import CommandLine

ONCE = Retry(attempts=1)


def enqueue(penstock: CommandLine, body: str = "{}", *more: str) -> str:
    """The id of a new job of queue images."""
    (done,) = penstock("job", "enqueue", "images", body, *more).rows
    return str(done["id"])


def worked(penstock: CommandLine, handle: Callable[[JobDelivery[Any]], Any], **terms: Any) -> None:
    """A worker does all that there is to do now."""

    async def work() -> None:
        async with Penstock.connect(penstock.url) as app:
            queue: JobQueue = app.jobs("images", **terms)
            queue.default(handle)
            running = asyncio.create_task(app.run(queue, signals=False))
            await queue.drain()
            app.stop()
            await running

    asyncio.run(work())


async def succeed(job: JobDelivery[Any]) -> Any:
    return {"was": job.body}


async def die(job: JobDelivery[Any]) -> None:
    raise Reject("no use")


def test_a_job_is_enqueued_as_it_was_asked_for(penstock: CommandLine, client: redis.Redis, tmp_path: Path) -> None:
    file, id = tmp_path / "body.json", new_id()
    file.write_text('{"from": "file"}')
    how = ("--kind", "Resize", "--priority", "high", "--id", id, "--header", "a=b", "-H", "c=d=e")
    assert enqueue(penstock, '{"n": 1}', *how) == id
    ((_, fields),) = client.xrange("{images}:high")
    assert (fields[b"id"].decode(), fields[b"type"], fields[b"payload"]) == (id, b"Resize", b'{"n":1}')
    assert json.loads(fields[b"headers"]) == {"a": "b", "c": "d=e"}
    penstock("job", "enqueue", "images", "--file", str(file), "--delay", "1h")
    (done,) = penstock("job", "enqueue", "images", "--file", "-", "--at", "+2h", stdin="[1]").rows
    assert done["due"] is not None
    assert {json.dumps(row["payload"]) for row in penstock("job", "ls", "images", "--status", "scheduled").rows} == {
        '{"from": "file"}', "[1]",
    }  # fmt: skip


def test_when_a_job_is_due_is_a_moment_to_come(penstock: CommandLine) -> None:
    begun = datetime.now(UTC)
    (done,) = penstock("job", "enqueue", "images", "1", "--at", "10 minutes").rows
    wait = datetime.fromisoformat(done["due"]) - begun
    assert timedelta(minutes=9, seconds=59) < wait < timedelta(minutes=11)
    assert penstock("job", "show", "images", done["id"]).rows[0]["status"] == "scheduled"
    for past in ("10m ago", "-10m", "2020-01-01"):
        assert "is past" in penstock.refused("job", "enqueue", "images", "2", "--at", past, code=2)
    assert len(penstock("job", "ls", "images").rows) == 1


def test_one_job_stands_for_its_key(penstock: CommandLine) -> None:
    first, second = (penstock("job", "enqueue", "images", body, "--unique-key", "k") for body in ("1", "2"))
    assert (first.rows[0]["duplicate"], first.err) == (False, "")
    assert (second.rows[0]["id"], second.rows[0]["duplicate"]) == (first.rows[0]["id"], True)
    told = f"job {first.rows[0]['id']} of queue 'images' stands for 'k' already"
    assert second.err == f"penstock: nothing was enqueued: {told}\n"
    assert len(penstock("job", "ls", "images").rows) == 1


def test_unfinished_jobs_are_listed(penstock: CommandLine) -> None:
    low, high = enqueue(penstock, "1", "--priority", "low"), enqueue(penstock, "2", "--priority", "high")
    later = enqueue(penstock, "3", "--delay", "1h")
    rows = penstock("job", "ls", "images").rows
    assert [(row["id"], row["status"], row["priority"]) for row in rows] == [
        (high, "queued", "high"), (low, "queued", "low"), (later, "scheduled", "normal"),
    ]  # fmt: skip
    assert "more than these 2" in penstock("job", "ls", "images", "--limit", "2").err
    assert [row["id"] for row in penstock("job", "ls", "images", "--status", "scheduled").rows] == [later]
    assert penstock("job", "ls", "images", "--status", "running").out == ""
    table = penstock("job", "ls", "images", "-o", "table").out
    assert all(id in table for id in (low, high, later))


def test_a_job_is_shown_until_it_is_done_and_its_result_after(penstock: CommandLine) -> None:
    id = enqueue(penstock, '{"n": 1}')
    (seen,) = penstock("job", "show", "images", id).rows
    assert (seen["status"], seen["payload"], seen["priority"]) == ("queued", {"n": 1}, "normal")
    line = penstock.refused("job", "result", "images", id, "--timeout", "10ms", code=1)
    assert f"job {id} of queue 'images' is queued after 10ms" in line
    worked(penstock, succeed)
    assert json.loads(penstock("job", "result", "images", id).out) == {"was": {"n": 1}}
    (seen,) = penstock("job", "show", "images", id).rows
    assert (seen["status"], seen["result"]) == ("succeeded", {"was": {"n": 1}})


def test_a_dead_job_tells_why_and_is_retried(penstock: CommandLine) -> None:
    id = enqueue(penstock)
    worked(penstock, die, retry=ONCE)
    (seen,) = penstock("job", "ls", "images", "--status", "dead").rows
    assert (seen["id"], seen["error"]) == (id, "no use")
    assert "was given up: no use" in penstock.refused("job", "result", "images", id, code=1)
    tried = penstock("job", "retry", "images", id, code=5)
    assert tried.out == f"Would try again job {id} of queue 'images', which is dead\n"
    assert penstock("job", "show", "images", id).rows[0]["status"] == "dead"
    assert penstock("job", "retry", "images", id, "--yes").rows == [{"id": id, "status": "queued"}]
    done = penstock("job", "retry", "images", id, "--yes", code=1)
    assert f"{id} is queued, and only a job that is failed or dead can be tried again" in done.err
    worked(penstock, succeed)
    assert json.loads(penstock("job", "result", "images", id).out) == {"was": {}}


def test_no_dry_run_says_of_a_job_what_cannot_be_done_to_it(penstock: CommandLine) -> None:
    done = enqueue(penstock)
    worked(penstock, succeed)
    queued, refusals = enqueue(penstock), {"retry": "can be tried again", "cancel": "cancel"}
    for verb, jobs in (("retry", (queued, done)), ("cancel", (done,))):
        for yes in ([], ["--yes"]):
            assert refusals[verb] in penstock("job", verb, "images", *jobs, *yes, code=1).err
    assert penstock("job", "cancel", "images", done, queued, code=5).out.splitlines() == [
        f"Would leave job {done} of queue 'images' as it is, and fail, for it is succeeded,"
        " and a job that is done or dead cannot be cancelled",
        f"Would cancel job {queued} of queue 'images', which is queued",
    ]


def test_no_terminal_obeys_what_a_handler_said(penstock: CommandLine) -> None:
    async def shout(job: JobDelivery[Any]) -> None:
        raise Reject("\x1b[2Jgone")

    id = enqueue(penstock)
    worked(penstock, shout, retry=ONCE)
    line = penstock.refused("job", "result", "images", id, code=1)
    assert line.endswith("was given up: \\x1b[2Jgone\n")


def test_jobs_are_cancelled_only_with_a_yes(penstock: CommandLine) -> None:
    queued, later = enqueue(penstock, "1"), enqueue(penstock, "2", "--delay", "1h")
    assert penstock("job", "cancel", "images", queued, later, code=5).out.splitlines() == [
        f"Would cancel job {queued} of queue 'images', which is queued",
        f"Would cancel job {later} of queue 'images', which is scheduled",
    ]
    assert len(penstock("job", "ls", "images").rows) == 2
    done = penstock("job", "cancel", "images", queued, later, "--yes")
    assert done.rows == [{"id": queued, "status": "cancelled"}, {"id": later, "status": "cancelled"}]
    assert penstock("job", "ls", "images").rows == []
    assert "was cancelled" in penstock.refused("job", "result", "images", queued, code=1)


def test_a_job_that_cannot_be_retried_is_told_in_a_sentence(penstock: CommandLine) -> None:
    id = enqueue(penstock)
    penstock("job", "cancel", "images", id, "--yes")
    why = f"{id} is cancelled, and only a job that is failed or dead can be tried again"
    for yes, be in (((), "would be"), (("--yes",), "was")):
        said = penstock("job", "retry", "images", id, *yes, code=1).err
        assert said == f"penstock: nothing {be} changed in queue 'images': {why}\n"


def test_it_can_be_too_late_to_cancel(penstock: CommandLine) -> None:
    id = enqueue(penstock)
    worked(penstock, succeed)
    assert (
        f"too late to cancel in queue 'images': {id} is succeeded"
        in penstock("job", "cancel", "images", id, "--yes", code=1).err
    )


def test_a_job_that_waits_is_done_now(penstock: CommandLine) -> None:
    later = enqueue(penstock, "1", "--delay", "1h")
    assert penstock("job", "run", "images", later).rows == [{"id": later, "status": "queued"}]
    assert "only a job that waits for its time can be run" in penstock("job", "run", "images", later, code=1).err
    assert [row["queued"] for row in penstock("job", "stats", "images").rows] == [0, 1, 0]
    assert "has 1 job queued" in penstock.refused("job", "drain", "images", "--timeout", "10ms", code=1)


def test_a_job_moves_to_another_lane(penstock: CommandLine) -> None:
    id = enqueue(penstock)
    penstock("job", "priority", "images", id, "high")
    assert [row["priority"] for row in penstock("job", "ls", "images").rows] == ["high"]
    assert "that is not high already, can be moved" in penstock("job", "priority", "images", id, "high", code=1).err


def test_a_queue_is_held_and_counted_lane_by_lane(penstock: CommandLine) -> None:
    enqueue(penstock, "1", "--priority", "high")
    enqueue(penstock, "2", "--delay", "1h")
    for then in ("is paused", "was paused already"):
        said = f"Queue 'images' {then}, until penstock job resume images\n"
        assert penstock("job", "pause", "images").out == said
    rows = penstock("job", "stats", "images").rows
    assert [(row["priority"], row["queued"], row["scheduled"], row["paused"]) for row in rows] == [
        ("high", 1, 0, True), ("normal", 0, 1, True), ("low", 0, 0, True),
    ]  # fmt: skip
    for then in ("is paused no more", "was not paused"):
        assert penstock("job", "resume", "images").out == f"Queue 'images' {then}\n"
        assert {row["paused"] for row in penstock("job", "stats", "images").rows} == {False}


def test_a_queue_of_which_one_lane_is_paused_is_neither_paused_nor_not(penstock: CommandLine) -> None:
    worked(penstock, succeed)
    for verb, then in (("pause", "is paused, until penstock job resume images"), ("resume", "is paused no more")):
        penstock("group", "pause", "{images}:low", "workers")
        assert penstock("job", verb, "images").out == f"Queue 'images' {then}\n"
        penstock("group", "resume", "{images}:low", "workers")
        penstock("job", "resume", "images")


@pytest.mark.parametrize("verb", ["ls", "stats", "pause", "resume", "drain"])
def test_a_queue_that_nobody_made_is_exit_code_3(penstock: CommandLine, client: redis.Redis, verb: str) -> None:
    assert "there is no queue 'images': its first job or worker makes it" in penstock.refused(
        "job", verb, "images", code=3
    )
    assert client.dbsize() == 0
    enqueue(penstock, "1", "--delay", "1h")  # no lane is made by that
    penstock("job", verb, "images")
    worked(penstock, succeed)
    line = penstock.refused("job", verb, "images", "--group", "wrokers", code=3)
    assert "has no workers 'wrokers': its groups are workers" in line


def test_a_queue_that_code_paused_before_its_first_job_is_resumed(penstock: CommandLine) -> None:
    async def pause() -> None:
        async with Penstock.connect(penstock.url) as app:
            await app.jobs("images").pause()

    asyncio.run(pause())
    penstock("job", "resume", "images")


def test_a_queue_of_an_app_with_a_prefix_is_found_as_it_is_told(penstock: CommandLine) -> None:
    async def put() -> None:
        async with Penstock.connect(penstock.url, prefix="shop:") as app:
            await app.jobs("images").enqueue({})

    asyncio.run(put())
    assert "is written like 'shop:{images}'" in penstock.refused("job", "ls", "shop:images", code=3)
    assert len(penstock("job", "ls", "shop:{images}").rows) == 1


def test_draining_waits_for_workers(penstock: CommandLine) -> None:
    enqueue(penstock)
    line = penstock.refused("job", "drain", "images", "--timeout", "50ms", code=1)
    assert "has 1 job queued and 0 running after 50ms: see that workers run" in line
    worked(penstock, succeed)
    penstock("job", "drain", "images")


def test_jobs_of_another_dialect_are_written_and_read(penstock: CommandLine, client: redis.Redis) -> None:
    id = enqueue(penstock, '{"n": 1}', "--kind", "k", "--dialect", "job")
    ((_, fields),) = client.xrange("{images}:normal")
    assert (fields[b"job_id"].decode(), json.loads(fields[b"data"])["payload"]) == (id, {"n": 1})
    (seen,) = penstock("job", "ls", "images", "--dialect", "job").rows
    assert (seen["id"], seen["kind"], seen["payload"]) == (id, "k", {"n": 1})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("enqueue", "images"), "a job needs a body"),
        (("enqueue", "images", "{"), "cannot be read as JSON"),
        (("enqueue", "images", "1", "--file", "x"), "given twice"),
        (("enqueue", "images", "1", "--header", "x"), "NAME=VALUE"),
        (("enqueue", "images", "1", "--delay", "1h", "--at", "+1h"), "give one of them"),
        (("enqueue", "images", "1", "--dialect", "job"), "give --kind"),
        (("enqueue", "images", "1", "--delay", "soon"), "no span of time"),
        (("enqueue", "images", "1", "--priority", "urgent"), "--priority"),
        (("ls", "images", "--status", "succeeded"), "--status"),
        (("ls", "images", "--limit", "0"), "--limit"),
        (("cancel", "images"), "name at least one job"),
        (("priority", "images", "x", "urgent"), "urgent"),
    ],
)
def test_bad_usage_is_one_line(penstock: CommandLine, arguments: tuple[str, ...], complaint: str) -> None:
    assert complaint in penstock.refused("job", *arguments, code=2)


def test_a_job_that_nobody_knows_is_exit_code_3_and_what_is_no_id_is_told(penstock: CommandLine) -> None:
    known, unknown = enqueue(penstock), new_id()
    for verb in ("show", "result", "retry", "run", "cancel"):
        assert f"knows no job {unknown}" in penstock.refused("job", verb, "images", unknown, code=3)
    penstock.refused("job", "cancel", "images", known, unknown, "--yes", code=3)
    assert [row["status"] for row in penstock("job", "ls", "images").rows] == ["queued"]
    for arguments in (("show", "images", "x"), ("result", "images", "x"), ("cancel", "images", known, "x", "--yes")):
        assert "known by its UUID, not by 'x'" in penstock.refused("job", *arguments, code=2)
    assert "known by its UUID" in penstock.refused("job", "enqueue", "images", "1", "--id", "x", code=2)
    assert [row["status"] for row in penstock("job", "ls", "images").rows] == ["queued"]


def test_a_job_that_is_named_twice_is_moved_once(penstock: CommandLine) -> None:
    id = enqueue(penstock, "1", "--delay", "1h")
    assert penstock("job", "run", "images", id, id.upper()).rows == [{"id": id, "status": "queued"}]
    worked(penstock, die, retry=ONCE)
    assert len(penstock("job", "retry", "images", id, id, "--yes").rows) == 1


def test_one_dead_job_that_cannot_be_retried_keeps_no_other_from_it(penstock: CommandLine, client: redis.Redis) -> None:
    first, second = enqueue(penstock, "1"), enqueue(penstock, "2")
    worked(penstock, die, retry=ONCE)
    key = keys.dead("{images}:normal")
    (letter, fields), (other, whole) = client.xrange(key)
    client.delete(key)
    client.xadd(key, fields | {b"penstock-dead": fields[b"penstock-dead"][:-1] + b',"lost":true}'}, letter)
    client.xadd(key, whole, other)
    done = penstock("job", "retry", "images", first, second, "--yes", code=1)
    assert {row["id"]: row["status"] for row in done.rows} == {first: "dead", second: "queued"}
    assert f"job {first} of queue 'images' cannot be tried again: " in done.err


def test_no_time_at_all_is_one_look(penstock: CommandLine) -> None:
    id = enqueue(penstock)
    now = ("--timeout", "0s")
    assert "is queued after 0ms" in penstock.refused("job", "result", "images", id, *now, code=1)
    assert "has 1 job queued" in penstock.refused("job", "drain", "images", *now, code=1)
    worked(penstock, succeed)
    assert json.loads(penstock("job", "result", "images", id, *now).out) == {"was": {}}
    penstock("job", "drain", "images", *now)
