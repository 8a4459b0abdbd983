"""Durable cursors that begin somewhere else than at the beginning, and places of no entry's: none is passed by."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Cursor, Gap, Last
from penstock.errors import CursorNotFoundError
from tests.support.stage import Stage
from tests.support.tailing import add, next_gap, numbers, publish, take

STARTS = ["time", "uuid", "id", "no entry's id", "before all", "last"]


async def start_of(stage: Stage, kind: str) -> Any:
    """Messages 0 to 4, and a place behind 0, or before it, of this kind."""
    if kind == "no entry's id":
        for number in range(5):
            add(stage, number, f"{10 * number + 10}-0")
        return "15-0"
    receipts = [await stage.app.bus(stage.topic).publish({"n": number}) for number in range(5)]
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    return {
        "time": an_hour_ago,
        "uuid": receipts[0].id,
        "id": receipts[0].entry_id,
        "before all": "5-0",
        "last": Last(4),
    }[kind]


async def test_a_cursor_goes_on_though_the_message_it_once_began_behind_is_gone(stage: Stage) -> None:
    receipts = [await stage.app.bus(stage.topic).publish({"n": number}) for number in range(5)]
    cursor = Cursor("copy", start=receipts[1].id)
    async with stage.app.tail(stage.topic, after=cursor) as tail:
        (item,) = await take(tail, 1)
        assert numbers([item]) == [2]
        await item.commit()  # type: ignore[union-attr] - it is no gap
    stage.admin.xtrim(stage.topic, minid=receipts[2].entry_id, approximate=False)
    async with stage.app.tail(stage.topic, after=cursor) as tail:
        assert numbers(await take(tail, 2)) == [3, 4]
    await stage.app.forget_cursor(stage.topic, "copy")
    with pytest.raises(CursorNotFoundError, match="no entry has this id"):
        async with stage.app.tail(stage.topic, after=cursor):
            pass


@pytest.mark.parametrize("kind", STARTS)
async def test_a_cursor_that_was_never_committed_is_told_of_another_stream(stage: Stage, kind: str) -> None:
    start = await start_of(stage, kind)
    first = 0 if kind in ("time", "before all") else 1
    for _ in range(2):
        async with stage.app.tail(stage.topic, after=Cursor("copy", start=start)) as tail:
            assert numbers(await take(tail, 5 - first)) == list(range(first, 5))
    stage.admin.delete(stage.topic)
    await publish(stage, 100)
    async with stage.app.tail(stage.topic, after=Cursor("copy", start=start)) as tail:
        assert (await next_gap(tail)).reason == "recreated"
        assert numbers(await take(tail, 1)) == [100]


@pytest.mark.parametrize("kind", STARTS)
async def test_who_was_given_nothing_is_told_of_another_stream(stage: Stage, kind: str) -> None:
    start = await start_of(stage, kind)
    first = 0 if kind in ("time", "before all") else 1
    async with stage.app.tail(stage.topic, after=start) as tail:
        began = tail.began_at()
    async with stage.app.tail(stage.topic, after=began) as tail:
        assert numbers(await take(tail, 5 - first)) == list(range(first, 5))
    stage.admin.delete(stage.topic)
    await publish(stage, 100)
    async with stage.app.tail(stage.topic, after=began) as tail:
        assert (await next_gap(tail)).reason == "recreated"
        assert numbers(await take(tail, 1)) == [100]


async def test_an_id_between_entries_is_a_place_and_no_sign_of_a_server_that_fell_back(stage: Stage) -> None:
    for number in range(1, 8):
        add(stage, number, f"{10 * number}-0")
    stage.admin.xdel(stage.topic, "20-0", "40-0")
    for after, given in {"35-0": [5, 6, 7], "45-0": [5, 6, 7], "40-0": [5, 6, 7], "55-0": [6, 7]}.items():
        async with stage.app.tail(stage.topic, after=after) as tail:
            began = tail.began_at()
            expected: list[Any] = ["deleted"] if after == "35-0" else []
            items = await take(tail, len(given) + len(expected))
            assert [one.reason for one in items if isinstance(one, Gap)] == expected
            assert numbers([one for one in items if not isinstance(one, Gap)]) == given
        async with stage.app.tail(stage.topic, after=began) as tail:
            again = await take(tail, len(given))
        assert not [one for one in again if isinstance(one, Gap) and one.reason == "rolled back"], after


async def test_an_id_of_a_topic_that_does_not_exist_stays_one_of_a_stream_that_is_gone(stage: Stage) -> None:
    async with stage.app.tail(stage.topic, after=Cursor("copy", start="50-0")) as tail:
        began = tail.began_at()
    add(stage, 1, "40-0")
    add(stage, 2, "60-0")
    for after in (began, Cursor("copy", start="50-0")):
        async with stage.app.tail(stage.topic, after=after) as tail:
            assert (await next_gap(tail)).reason == "recreated"
            assert numbers(await take(tail, 2)) == [1, 2]


@pytest.mark.parametrize("is_open_before", [True, False])
async def test_a_cursor_from_before_there_was_a_topic_is_told_of_another_stream(
    stage: Stage, is_open_before: bool
) -> None:
    """From the first item on that it was given, though it has committed none."""
    async with stage.app.tail(stage.topic, after=Cursor("copy")) as tail:
        if is_open_before:
            await publish(stage, 0, 1)
            assert numbers(await take(tail, 1)) == [0]
    if not is_open_before:
        await publish(stage, 0, 1)
    async with stage.app.tail(stage.topic, after=Cursor("copy")) as tail:
        assert numbers(await take(tail, 2)) == [0, 1]
    stage.admin.delete(stage.topic)
    await publish(stage, 100)
    async with stage.app.tail(stage.topic, after=Cursor("copy")) as tail:
        assert (await next_gap(tail)).reason == "recreated"
        assert numbers(await take(tail, 1)) == [100]
