"""A server that fell back to an older state, and went on: who comes back with a position that it has lost is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from penstock import Cursor, Gap, Tail, Tailed
from tests.support.stage import Stage
from tests.support.tailing import add, next_gap, numbers, restore, take

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)


@BOTH
async def test_a_position_that_the_server_has_lost_is_told_whatever_came_since(stage: Stage) -> None:
    """Nothing was ever trimmed, and ids are larger again: nothing but the entry itself, which is not there, tells."""
    add(stage, 0, "5-0")
    async with stage.app.tail(stage.topic, after=Cursor("lake")) as tail:
        assert numbers(await take(tail, 1)) == [0]
        old = stage.admin.dump(stage.topic)
        add(stage, 1, "9-0")
        lost = await committed(tail)
    restore(stage, old, {2: "7-0", 3: "8-0", 4: "12-0"})
    for after in (lost, Cursor("lake")):
        async with stage.app.tail(stage.topic, after=after) as tail:
            assert await next_gap(tail) == Gap(stage.topic, "0-0", "9-0", None, "rolled back")
            assert numbers(await take(tail, 1)) == [4]


@BOTH
async def test_a_position_that_the_server_has_lost_is_told_beside_others_who_know_of_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have gone on from where the server fell back to, with ids that are smaller, and larger."""
    monkeypatch.setattr("penstock.tail.reader._LOOK_AGAIN", timedelta(milliseconds=50))
    add(stage, 0, "5-0")
    async with stage.app.tail(stage.topic, after=Cursor("lake")) as other:
        assert numbers(await take(other, 1)) == [0]
        old = stage.admin.dump(stage.topic)
        add(stage, 1, "9-0")
        lost = await committed(other)
        told = Gap(stage.topic, "0-0", "9-0", None, "rolled back")
        restore(stage, old, {2: "7-0"})
        assert await next_gap(other) == told
        async with behind(stage, lost) as (tail, durable):
            assert (await next_gap(tail), await next_gap(durable)) == (told, told)
            add(stage, 3, "8-0")
            for one in (other, tail, durable):
                assert numbers(await take(one, 1)) == [3]
            add(stage, 4, "12-0")
            assert numbers(await take(other, 1)) == [4]
        async with behind(stage, lost) as (tail, durable):
            assert (await next_gap(tail), await next_gap(durable)) == (told, told)
            assert numbers(await take(tail, 1)) == numbers(await take(durable, 1)) == [4]


async def test_a_cursor_that_was_told_goes_on_from_what_it_commits_then(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes has smaller ids than what is lost, as the clock is behind: none of it is passed by."""
    monkeypatch.setattr("penstock.tail.reader._LOOK_AGAIN", timedelta(milliseconds=50))
    add(stage, 0, "5-0")
    async with stage.app.tail(stage.topic, after=Cursor("lake")) as tail:
        assert numbers(await take(tail, 1)) == [0]
        old = stage.admin.dump(stage.topic)
        add(stage, 1, "9-0")
        await committed(tail)
        restore(stage, old, {})
        assert (await next_gap(tail)).reason == "rolled back"
        add(stage, 2, "7-0")
        await committed(tail)
    add(stage, 3, "8-0")
    async with stage.app.tail(stage.topic, after=Cursor("lake")) as tail:
        assert numbers(await take(tail, 1)) == [3]


@asynccontextmanager
async def behind(stage: Stage, position: str) -> AsyncIterator[tuple[Tail, Tail]]:
    async with (
        stage.app.tail(stage.topic, after=position) as tail,
        stage.app.tail(stage.topic, after=Cursor("lake")) as durable,
    ):
        yield tail, durable


async def committed(tail: Tail) -> str:
    """The position of the next item, up to which the cursor is moved."""
    (item,) = await take(tail, 1)
    assert isinstance(item, Tailed)
    assert await item.commit() is True
    return item.position
