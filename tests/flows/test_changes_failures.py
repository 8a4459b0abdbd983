"""A head that cannot be read, or fails: it stops its stream, or goes to the dead letters, and never in silence."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from penstock import ChangeOptions, Changes, OnFailure, Penstock, Reject, Retry, Snooze
from penstock.errors import AckOutOfSequenceError, ChangeMessageError, ChangeStreamIOError, ConfigurationError
from penstock.events import DeadLettered, Failed
from tests.flows.test_changes import BOTH, position, take
from tests.flows.test_changes_takeover import Readers, readers
from tests.support.proxy import Proxy
from tests.support.stage import Stage
from tests.support.tailing import publish

__all__ = ["readers"]

QUICK = Retry(attempts=3, initial=timedelta(milliseconds=20), jitter=False)
BURY = ChangeOptions(on_failure=OnFailure.DEAD_LETTER, retry=QUICK)
STOP = ChangeOptions(retry=QUICK)


def ledger(stage: Stage, options: ChangeOptions, **terms: object) -> Changes[object]:
    return stage.app.changes(stage.topic, reader="ledger", options=options, **terms)  # type: ignore[arg-type]


@BOTH
async def test_what_cannot_be_read_goes_to_the_dead_letters_and_the_rest_comes(stage: Stage) -> None:
    await publish(stage, 0)
    bad = [stage.add_raw({"payload": "{not json"}), stage.add_raw({"other": "x"})]
    ids = await publish(stage, 1)
    async with ledger(stage, BURY) as changes:
        assert await take(changes, 2) == [0, 1]
        letters = [one async for one in changes.dead]
        assert [(one.entry_id, one.group, bytes(one.raw[1])) for one in letters] == [
            (bad[0], "ledger", b"{not json"),
            (bad[1], "ledger", b"x"),
        ]
        report = await changes.dead.replay()
        assert (report.replayed, len(report.refused)) == (0, 2)
    assert position(stage) == (ids[0], 4, 0)
    assert [one.entry_id for one in stage.told(DeadLettered, "ledger")] == bad


async def test_the_caller_may_bury_what_cannot_be_read(stage: Stage) -> None:
    bad = stage.add_raw({"payload": "{not json"})
    await publish(stage, 1)
    async with ledger(stage, STOP) as changes:
        with pytest.raises(ChangeMessageError) as caught:
            await changes.recv()
        with pytest.raises(AckOutOfSequenceError):
            await changes.dead_letter("1-1", "no such message")
        await changes.dead_letter(caught.value.id, "known to be broken")
        assert await take(changes, 1) == [1]
        (letter,) = [one async for one in changes.dead]
        assert (letter.entry_id, letter.reason) == (bad, "known to be broken")


async def test_a_failing_head_comes_again_later_and_later_and_stops_the_stream(stage: Stage) -> None:
    await publish(stage, 0, 1)
    async with ledger(stage, STOP) as changes:
        times = []
        for attempt in range(1, 6):
            change = await changes.recv()
            assert change is not None
            times.append(asyncio.get_running_loop().time())
            assert (change.body["n"], change.attempt) == (0, attempt)
            await change.retry(ValueError("no"))
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert all(gap >= expected for gap, expected in zip(gaps, [0.02, 0.04, 0.08, 0.16], strict=True))
        assert not [one async for one in changes.dead]
        assert [one.attempt for one in stage.told(Failed, "ledger")] == [1, 2, 3, 4, 5]
        assert await take(changes, 2) == [0, 1]


async def test_what_was_acknowledged_unheard_is_not_said_to_be_a_dead_letter(
    stage: Stage, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await publish(stage, 0, 1, 2)
    async with Penstock.connect(proxy.url) as app, app.changes(stage.topic, reader="ledger") as changes:
        assert await take(changes, 1) == [0]
        change = await changes.recv()
        assert change is not None
        monkeypatch.setattr("penstock.backend.redis.links._PATIENCE_SECONDS", 0.1)
        proxy.refusing = True
        proxy.drop_reply_to("EVALSHA")
        with pytest.raises(ChangeStreamIOError):
            await change.ack()
        assert position(stage)[0] == ids[1]
        monkeypatch.undo()
        proxy.refusing = False
        with pytest.raises(AckOutOfSequenceError):
            await change.reject("after all")
        assert not [one async for one in changes.dead]
        assert await take(changes, 1) == [2]


async def test_its_failures_are_known_to_whoever_takes_over(stage: Stage) -> None:
    await publish(stage, 0)
    for attempt in (1, 2):
        async with ledger(stage, STOP) as changes:
            change = await changes.recv()
            assert change is not None
            assert change.attempt == attempt
            await change.retry("not today")


@BOTH
async def test_when_its_attempts_are_used_up_it_goes_to_the_dead_letters(stage: Stage) -> None:
    ids = await publish(stage, 0, 1)
    async with ledger(stage, BURY) as changes:
        for attempt in range(1, 4):
            change = await changes.recv()
            assert change is not None
            assert (change.body["n"], change.attempt) == (0, attempt)
            async with change:
                raise ValueError("never")
        assert await take(changes, 1) == [1]
        (letter,) = [one async for one in changes.dead]
        assert (letter.id, letter.entry_id, letter.attempts) == (change.id, ids[0], 3)
        assert (letter.reason, letter.error) == ("ValueError: never", "builtins.ValueError")
        assert "test_changes_failures" in letter.traceback
    assert position(stage) == (ids[1], 2, 0)


async def test_a_block_settles_its_change_by_how_it_ends(stage: Stage) -> None:
    await publish(stage, *range(4))
    async with ledger(stage, STOP, coalesce=4) as changes:
        fates = iter([None, Snooze(timedelta(milliseconds=30)), None, Reject("unwanted"), None])
        seen = []
        async with asyncio.timeout(10):
            async for change in changes:
                async with change:
                    seen.append((change.body["n"], change.attempt))
                    if (fate := next(fates)) is not None:
                        raise fate
                if len(seen) == 5:
                    break
        assert seen == [(0, 1), (1, 1), (1, 1), (2, 1), (3, 1)]
        assert [one.reason async for one in changes.dead] == ["unwanted"]
        cancelled = await changes.recv() if await publish(stage, 4) else None
        assert cancelled is not None
        with pytest.raises(asyncio.CancelledError):
            async with cancelled:
                raise asyncio.CancelledError
        assert await changes.recv() is cancelled


async def test_what_kills_its_process_again_and_again_goes_to_the_dead_letters(stage: Stage, readers: Readers) -> None:
    await publish(stage, 0)
    deadly = (await publish(stage, -1))[0]
    await publish(stage, 1, 2)
    async with asyncio.timeout(30):
        while not stage.admin.exists(f"penstock:{{{stage.topic}}}:{stage.topic}:dead"):
            program = await readers.start(deadly=True, attempts=2)
            await readers.until(lambda pid=program.process: pid.poll() is not None or len(readers.lines("acked")) == 3)
    await readers.until(lambda: len(readers.lines("acked")) == 3)
    assert [line.body["n"] for line in readers.lines("acked")] == [0, 1, 2]
    starts = [line for line in readers.lines("start") if line.id == deadly]
    assert len(starts) == 3, "the first one before anybody could suspect it, then its attempts"
    changes = ledger(stage, BURY)
    (letter,) = [one async for one in changes.dead]
    assert (letter.entry_id, letter.attempts) == (deadly, 3)


@pytest.mark.parametrize("wrong", ["skip", None, 3])
def test_a_policy_that_is_none_is_refused(wrong: object) -> None:
    assert ChangeOptions(on_failure="dead_letter").on_failure is OnFailure.DEAD_LETTER  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="on_failure"):
        ChangeOptions(on_failure=wrong)  # type: ignore[arg-type]
