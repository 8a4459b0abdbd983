"""Reading a topic alone: every entry once, in order, at one's own pace, whatever happens meanwhile."""

import asyncio
import itertools

import pytest

from penstock.backend.entry import Glimpse
from penstock.backend.redis import RedisBackend
from penstock.errors import ServerUnreachableError
from penstock.tail.alone import LoneReader
from tests.support.stage import Stage


def add(stage: Stage, count: int, size: int = 1) -> list[str]:
    with stage.admin.pipeline(transaction=False) as together:
        for _ in range(count):
            together.xadd(stage.topic, {"payload": f'"{"x" * size}"'})
        return [id.decode() for id in together.execute()]


async def to_the_end(reader: LoneReader) -> list[str]:
    found: list[str] = []
    while True:
        step = await reader.read()
        assert step.gap is None
        found += [entry.id for entry in step.entries]
        if step.is_at_end:
            return found


async def test_every_entry_is_given_once_and_then_those_that_come(stage: Stage) -> None:
    async with LoneReader(stage.app.backend, stage.topic, "earliest") as reader:
        assert reader.is_nowhere
        ids = add(stage, 2500)
        assert await to_the_end(reader) == ids
        assert not reader.is_nowhere
        for _ in range(3):
            waiting = asyncio.create_task(reader.wait())
            more = add(stage, 2)
            async with asyncio.timeout(10):
                await waiting
            assert await to_the_end(reader) == more


async def test_a_read_that_fails_is_read_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, found, failed, glimpse = add(stage, 5000), list[str](), 0, RedisBackend.glimpse

    async def failing(backend: RedisBackend, topic: str, id: str, count: int) -> Glimpse:
        if next(calls) % 3 == 2:
            raise ServerUnreachableError("the connection broke")
        return await glimpse(backend, topic, id, count)

    async with LoneReader(stage.app.backend, stage.topic, "earliest") as reader:
        calls = itertools.count()
        monkeypatch.setattr(RedisBackend, "glimpse", failing)
        while len(found) < len(ids):
            try:
                found += [entry.id for entry in (await reader.read()).entries]
            except ServerUnreachableError:
                failed += 1
    assert found == ids
    assert failed >= 2


async def test_what_is_removed_before_it_is_read_is_told(stage: Stage) -> None:
    ids = add(stage, 300)
    async with LoneReader(stage.app.backend, stage.topic, ids[9]) as reader:
        stage.admin.xtrim(stage.topic, minid=ids[100], approximate=False)
        step = await reader.read()
        assert step.gap is not None
        assert (step.gap.reason, step.gap.after) == ("trimmed", ids[9])
        assert step.entries[0].id == ids[100]


async def test_large_entries_come_few_at_a_time(stage: Stage) -> None:
    ids = add(stage, 40, size=200_000)
    async with LoneReader(stage.app.backend, stage.topic, "earliest") as reader:
        sizes = [len((await reader.read()).entries) for _ in range(4)]
    assert sizes[1:] == [1, 1, 1], "a page is 256 KiB, once the size is known"
    assert len(ids) == 40


async def test_one_that_is_left_in_the_middle_leaves_nothing_behind(stage: Stage) -> None:
    add(stage, 3000)
    async with LoneReader(stage.app.backend, stage.topic, "earliest") as reader:
        await reader.read()
        assert reader._ahead is not None
        ahead = reader._ahead
    assert ahead.done()
