"""A failed delivery waits, comes back to its own group when due, and keeps its identity on the way."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, Malformed, Park, Settled
from penstock.backend.facts import position
from penstock.backend.redis import RedisBackend
from penstock.errors import ConfigurationError, ServerOutOfMemoryError, WrongKeyTypeError
from penstock.message.message import Message
from tests.support.dead import dead_letters

NOW = timedelta(0)
HOUR = timedelta(hours=1)


async def lease(backend: RedisBackend, topic: str, bodies: list[object]) -> list[ClaimedMessage]:
    await backend.create_group(topic, "g")
    await backend.publish_many(topic, [Message(body, key="k", headers={"a": "b"}) for body in bodies])
    entries = await backend.read_new(topic, "g", "c", len(bodies), NOW)
    return [entry for entry in entries if isinstance(entry, ClaimedMessage)]


async def retried(backend: RedisBackend, topic: str, count: int = 10) -> list[ClaimedMessage]:
    entries = await backend.read_new(keys.retry(topic, "g"), "g", "c", count, NOW)
    return [entry for entry in entries if isinstance(entry, ClaimedMessage)]


async def test_a_parked_delivery_comes_back_as_the_same_message_with_its_attempt(
    backend: RedisBackend, topic: str
) -> None:
    (entry,) = await lease(backend, topic, [{"n": 1}])
    await backend.settle(topic, "g", "c", parked=[Park(entry, NOW, 2, "ValueError: no")])
    assert await backend.promote(topic, "g") == (1, None)
    (again,) = await retried(backend, topic)
    assert again.message == entry.message
    assert again.origin == entry.id
    assert again.stream == keys.retry(topic, "g")
    assert (again.state.attempt, again.state.redelivered) == (2, True)
    assert again.state.first_received == entry.state.first_received
    assert again.raw == entry.raw


async def test_what_is_not_due_comes_back_early_if_it_is_asked_for_in_the_order_it_was_due(
    backend: RedisBackend, topic: str
) -> None:
    entries = await lease(backend, topic, [0, 1, 2])
    parks = [Park(entry, HOUR * (3 - number), 2) for number, entry in enumerate(entries)]
    await backend.settle(topic, "g", "c", parked=parks)
    waits = await backend.awaited(topic, "g")
    assert waits.parked_due is not None
    assert (await backend.promote(topic, "g"))[0] == 0
    (done,) = [step async for step in backend.promote_early(topic, "g")]
    assert (done.moved, done.left, done.first_due) == (3, 0, waits.parked_due)
    assert done.last_due is not None
    assert timedelta(minutes=119) < done.last_due - waits.parked_due < timedelta(minutes=121)
    assert [entry.message.body for entry in await retried(backend, topic)] == [2, 1, 0]
    assert await backend.promote(topic, "g") == (0, None)


@pytest.mark.parametrize("spread", [timedelta(0), timedelta(seconds=1)])
async def test_early_each_that_waited_comes_back_once_whatever_fails_again_meanwhile(
    backend: RedisBackend, topic: str, spread: timedelta
) -> None:
    entries = await lease(backend, topic, list(range(350)))
    parks = [Park(entry, HOUR + spread * number, 2) for number, entry in enumerate(entries)]
    await backend.settle(topic, "g", "c", parked=parks)
    seen, sizes = Counter[int](), list[int]()
    async for step in backend.promote_early(topic, "g"):
        sizes.append(step.moved)
        again = await retried(backend, topic, 100)
        seen.update(entry.message.body for entry in again)
        # Due before all others, among those that are yet to come, and behind the last.
        delays = (timedelta(seconds=1), HOUR + spread * 300, 9 * HOUR)
        parks = [Park(entry, delays[number % 3], 3) for number, entry in enumerate(again)]
        assert (await backend.settle(keys.retry(topic, "g"), "g", "c", parked=parks)).ok == len(again)
    assert seen == Counter(range(350))
    assert max(sizes) == 100
    assert (await backend.awaited(topic, "g")).parked == 350


async def test_early_what_has_not_failed_waits_as_before(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    entries = await lease(backend, topic, ["failed", "snoozed", "late"])
    attempts, delays = (2, 1, 1), (HOUR, HOUR, NOW)
    parks = [Park(*park) for park in zip(entries, delays, attempts, strict=True)]
    await backend.settle(topic, "g", "c", parked=parks)
    scheduled = [Message(f"job {number}") for number in range(250)]  # all due at one moment
    await backend.schedule(topic, "g", scheduled, delay=2 * HOUR)
    (failed,) = await lease(backend, topic, ["failed later"])
    await backend.settle(topic, "g", "c", parked=[Park(failed, 3 * HOUR, 2)])
    admin.zadd(keys.parked(topic, "g"), {b"junk": 9e15})
    counted = [step async for step in backend.promote_early(topic, "g", only_count=True)]
    assert admin.exists(keys.retry(topic, "g")) == 0
    done = [step async for step in backend.promote_early(topic, "g")]
    for steps in (counted, done):
        assert (sum(step.moved for step in steps), sum(step.left for step in steps)) == (3, 252)
    assert [entry.message.body for entry in await retried(backend, topic)] == ["late", "failed", "failed later"]
    assert (await backend.inspect(topic)).dead == 0


async def test_early_what_was_snoozed_and_fails_then_comes_back(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    (entry,) = await lease(backend, topic, [1])
    await backend.settle(topic, "g", "c", parked=[Park(entry, NOW, 1)])
    await backend.promote(topic, "g")
    (entry,) = await retried(backend, topic)
    await backend.settle(entry.stream, "g", "c", parked=[Park(entry, HOUR, 2)])
    while admin.time()[1] // 1000 == position(entry.id)[0] % 1000:  # within one millisecond nobody can tell
        pass
    assert [step.moved async for step in backend.promote_early(topic, "g")] == [1]


async def test_what_waits_can_be_seen_those_that_are_due_first(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    assert await backend.read_parked(topic, "g") == []
    entries = await lease(backend, topic, list(range(25)))
    parks = [Park(entry, HOUR * (25 - number), 2, f"no. {number}") for number, entry in enumerate(entries)]
    await backend.settle(topic, "g", "c", parked=parks)
    (due,) = await backend.schedule(topic, "g", [Message("later")], delay=100 * HOUR)
    admin.zadd(keys.parked(topic, "g"), {b"junk": 1})
    seen = await backend.read_parked(topic, "g")
    assert [one.reason for one in seen] == [f"no. {number}" for number in reversed(range(25))] + [""]
    assert [one.origin for one in seen[:-1]] == [entry.id for entry in reversed(entries)]
    assert [one.attempt for one in seen] == [2] * 25 + [1]
    assert seen[-1].due == due
    assert abs((seen[1].due - seen[0].due) - HOUR) < timedelta(seconds=1)
    assert list(seen[0].raw)[: len(entries[0].raw)] == list(entries[-1].raw)
    assert await backend.read_parked(topic, "g", 12) == seen[:11]  # and one that cannot be opened


async def test_much_that_waits_is_not_read_at_once(backend: RedisBackend, topic: str) -> None:
    messages = [Message("x" * 900_000) for _ in range(30)]
    await backend.schedule(topic, "g", messages, delay=HOUR)
    assert len(await backend.read_parked(topic, "g")) == 10


async def test_it_is_not_ready_before_it_is_due(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    entries = await lease(backend, topic, [1, 2])
    parks = [Park(entries[0], HOUR, 2), Park(entries[1], NOW, 2)]
    await backend.settle(topic, "g", "c", parked=parks)
    moved, wait = await backend.promote(topic, "g")
    assert moved == 1
    assert wait is not None
    assert timedelta(minutes=59) < wait <= HOUR
    assert [entry.message.body for entry in await retried(backend, topic)] == [2]
    assert admin.zcard(keys.parked(topic, "g")) == 1


async def test_other_groups_never_see_a_retry(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    await backend.create_group(topic, "other")
    (entry,) = await lease(backend, topic, [1])
    await backend.settle(topic, "g", "c", parked=[Park(entry, NOW, 2)])
    await backend.promote(topic, "g")
    assert len(await backend.read_new(topic, "other", "c", 10, NOW)) == 1
    assert await backend.read_new(topic, "other", "c", 10, NOW) == []
    assert admin.xlen(topic) == 1


async def test_a_retry_can_fail_again_and_again_and_keeps_its_origin(backend: RedisBackend, topic: str) -> None:
    (entry,) = await lease(backend, topic, [1])
    first = entry
    for attempt in (2, 3, 4):
        await backend.settle(entry.stream, "g", "c", parked=[Park(entry, NOW, attempt)])
        await backend.promote(topic, "g")
        (entry,) = await retried(backend, topic)
        assert (entry.state.attempt, entry.origin, entry.message) == (attempt, first.id, first.message)


async def test_a_message_without_an_id_keeps_the_one_it_was_first_given(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await backend.create_group(topic, "g")
    admin.xadd(topic, {"payload": "1"})
    (entry,) = await backend.read_new(topic, "g", "c", 1, NOW)
    assert isinstance(entry, ClaimedMessage)
    await backend.settle(topic, "g", "c", parked=[Park(entry, NOW, 2)])
    await backend.promote(topic, "g")
    (again,) = await retried(backend, topic)
    assert again.message.id == entry.message.id


async def test_a_settled_retry_leaves_nothing_behind(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    entries = await lease(backend, topic, [1, 2, 3])
    await backend.settle(topic, "g", "c", parked=[Park(entry, NOW, 2) for entry in entries])
    await backend.promote(topic, "g")
    done, parked, dead = await retried(backend, topic)
    retry = keys.retry(topic, "g")
    result = await backend.settle(
        retry, "g", "c", done=[done], parked=[Park(parked, HOUR, 3)], dead=[DeadLetter(dead, "enough")]
    )
    assert result == Settled(ok=3)
    assert admin.xlen(retry) == 0
    assert admin.xpending(retry, "g")["pending"] == 0
    assert admin.zcard(keys.parked(topic, "g")) == 1
    ((record, raw),) = dead_letters(admin, topic)
    assert (record.topic, record.entry, record.attempts) == (topic, entries[2].id, 2)
    assert raw == list(entries[2].raw)


async def test_a_retry_whose_consumer_died_is_reclaimed_with_its_attempt(backend: RedisBackend, topic: str) -> None:
    (entry,) = await lease(backend, topic, [1])
    await backend.settle(topic, "g", "c", parked=[Park(entry, NOW, 4)])
    await backend.promote(topic, "g")
    await retried(backend, topic)
    (taken,) = await backend.reclaim_idle(keys.retry(topic, "g"), "g", "heir", NOW, 5)
    assert (taken.state.attempt, taken.origin) == (4, entry.id)
    assert await backend.settle(taken.stream, "g", "heir", done=[taken]) == Settled(ok=1)


async def test_deliveries_are_counted_on_through_retries_death_and_replay(backend: RedisBackend, topic: str) -> None:
    retry = keys.retry(topic, "g")
    await lease(backend, topic, [1])
    (stolen,) = await backend.reclaim_idle(topic, "g", "c", NOW, 1)
    assert isinstance(stolen, ClaimedMessage)
    await backend.settle(topic, "g", "c", parked=[Park(stolen, NOW, 2)])
    await backend.promote(topic, "g")
    (second,) = await retried(backend, topic)
    (third,) = await backend.reclaim_idle(retry, "g", "c", NOW, 1)
    assert [entry.state.deliveries for entry in (stolen, second, third)] == [2, 3, 4]
    await backend.settle(retry, "g", "c", dead=[DeadLetter(third, "why")])
    (letter,) = await backend.read_dead(topic)
    assert letter.record.deliveries == 4
    await backend.replay_dead(topic, "g", [letter], "again")
    (replayed,) = await retried(backend, topic)
    assert (replayed.state.attempt, replayed.state.deliveries) == (1, 5)


async def test_the_last_copy_of_a_deleted_retry_is_kept_when_it_is_parked_or_dies(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    retry = keys.retry(topic, "g")
    entries = await lease(backend, topic, [1, 2])
    await backend.settle(topic, "g", "c", parked=[Park(entry, NOW, 2) for entry in entries])
    await backend.promote(topic, "g")
    parked, dead = await retried(backend, topic)
    admin.delete(retry)
    settled = await backend.settle(
        retry, "g", "c", parked=[Park(parked, NOW, 3)], dead=[DeadLetter(dead, "it failed too often")]
    )
    assert settled == Settled(ok=2)
    await backend.promote(topic, "g")
    (again,) = await retried(backend, topic)
    assert (again.origin, again.state.attempt, again.raw) == (parked.origin, 3, parked.raw)
    ((record, raw),) = dead_letters(admin, topic)
    assert (record.entry, raw) == (dead.origin, list(dead.raw))


async def test_promoting_moves_no_more_than_it_is_told_earliest_first(backend: RedisBackend, topic: str) -> None:
    entries = await lease(backend, topic, list(range(5)))
    # In one call, so that one moment counts for all of them.
    parks = [Park(entry, timedelta(milliseconds=entry.message.body), 2) for entry in reversed(entries)]
    await backend.settle(topic, "g", "c", parked=parks)
    moved = []
    while len(moved) < 5:
        count, _ = await backend.promote(topic, "g", limit=2)
        assert count <= 2
        moved += [entry.message.body for entry in await retried(backend, topic)]
    assert moved == sorted(moved)


@pytest.mark.parametrize("early", [False, True])
async def test_a_step_takes_as_long_however_many_large_ones_wait(
    backend: RedisBackend, topic: str, admin: "redis.Redis", *, early: bool
) -> None:
    async def longest(count: int) -> int:
        await backend.schedule(
            topic, str(count), [Message("x" * 900_000) for _ in range(count)], delay=HOUR if early else NOW
        )
        took = []
        for _ in range(3):
            admin.config_resetstat()
            if early:
                moved = (await anext(backend.promote_early(topic, str(count)))).left  # none has failed
            else:
                moved, _ = await backend.promote(topic, str(count))
            assert moved == 2, "these are more than a MiB"
            stats = admin.info("commandstats")
            took.append(
                sum(stats[f"cmdstat_{name}"]["usec"] for name in ("eval", "evalsha") if f"cmdstat_{name}" in stats)
            )
        return min(took)

    few, many = await longest(6), await longest(80)
    assert many < 5 * few, "it would copy all that wait, to move two of them"


@pytest.mark.parametrize("kind", ["parked", "later"])
async def test_a_step_copies_few_large_ones_behind_many_small_ones(
    backend: RedisBackend, topic: str, admin: "redis.Redis", kind: str
) -> None:
    """What a step moves is bounded by bytes; what it copies on the way must be, too."""
    for bodies in (["x"] * 63, ["x" * 900_000] * 80):
        messages = [Message(body) for body in bodies]
        if kind == "parked":
            await backend.schedule(topic, "g", messages, delay=NOW)
        else:
            await backend.publish_later(topic, messages, delay=timedelta(milliseconds=1))
        await asyncio.sleep(0.002)  # those that are due in the same millisecond lie in the order of their bytes
    with admin.monitor() as monitor:
        promoted, _ = await (backend.promote(topic, "g") if kind == "parked" else backend.promote_later(topic))
        admin.echo("done")
        looks = []
        for line in monitor.listen():
            if line["command"].startswith("ECHO"):
                break
            if line["command"].startswith(("ZRANGE", "zrange")) and "LIMIT" in line["command"]:
                looks.append(int(line["command"].split()[-2 if kind == "parked" else -1]))
    assert promoted == 65
    assert max(looks) <= 10, "so many at most are copied, to move two of them"


async def test_concurrent_promoters_move_each_delivery_once(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    entries = await lease(backend, topic, list(range(300)))
    await backend.settle(topic, "g", "c", parked=[Park(entry, NOW, 2) for entry in entries])
    moved = await asyncio.gather(*(backend.promote(topic, "g", limit=50) for _ in range(10)))
    assert sum(count for count, _ in moved) == 300
    assert admin.xlen(keys.retry(topic, "g")) == 300


async def test_bytes_of_any_kind_survive_parking(backend: RedisBackend, topic: str) -> None:
    body = bytes(range(256)) * 3
    (entry,) = await lease(backend, topic, [body])
    await backend.settle(topic, "g", "c", parked=[Park(entry, NOW, 2)])
    await backend.promote(topic, "g")
    (again,) = await retried(backend, topic)
    assert again.message.body == body


async def test_a_parked_set_spoilt_by_others_does_not_stop_what_is_behind(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    (entry,) = await lease(backend, topic, [1])
    await backend.settle(topic, "g", "c", parked=[Park(entry, NOW, 2)])
    junk = [b"junk", b"\0\0\0\xffshort", b"\0\0\0\x01a"]
    admin.zadd(keys.parked(topic, "g"), dict.fromkeys(junk, 0))
    assert (await backend.promote(topic, "g"))[0] == 4
    assert [again.message for again in await retried(backend, topic)] == [entry.message]
    letters = dead_letters(admin, topic)
    assert sorted(raw[1] for _, raw in letters) == sorted(junk)
    assert all(record.unopened for record, _ in letters)


async def test_an_entry_in_a_retry_stream_without_its_record_is_malformed(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await lease(backend, topic, [1])
    retry = keys.retry(topic, "g")
    admin.xgroup_create(retry, "g", "0", mkstream=True)
    admin.xadd(retry, {"payload": "1"})
    admin.xadd(retry, {"payload": "1", "penstock-delivery": "{}"})
    admin.xadd(retry, {"payload": "1", "penstock-delivery": '{"x":' + "[" * 100_000})
    entries = await backend.read_new(retry, "g", "c", 10, NOW)
    assert [type(entry) for entry in entries] == [Malformed, Malformed, Malformed]
    assert await backend.settle(retry, "g", "c", dead=[DeadLetter(entry, "?") for entry in entries]) == Settled(ok=3)


@pytest.mark.parametrize("kind", ["retry", "dead"])
async def test_promoting_onto_another_kind_of_key_moves_nothing(
    backend: RedisBackend, topic: str, admin: "redis.Redis", kind: str
) -> None:
    (entry,) = await lease(backend, topic, [1])
    await backend.settle(topic, "g", "c", parked=[Park(entry, NOW, 2)])
    key = keys.retry(topic, "g") if kind == "retry" else keys.dead(topic)
    admin.set(key, "in the way")
    with pytest.raises(WrongKeyTypeError):
        await backend.promote(topic, "g")
    assert admin.zcard(keys.parked(topic, "g")) == 1


async def test_a_full_server_refuses_to_park_and_the_delivery_stays_pending(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    entries = await lease(backend, topic, [1, 2])
    admin.config_set("maxmemory", 1)
    try:
        with pytest.raises(ServerOutOfMemoryError):
            await backend.settle(topic, "g", "c", parked=[Park(entries[0], NOW, 2)])
        with pytest.raises(ServerOutOfMemoryError):
            await backend.settle(topic, "g", "c", dead=[DeadLetter(entries[1], "why")])
    finally:
        admin.config_set("maxmemory", 0)
    assert admin.xpending(topic, "g")["pending"] == 2
    assert not admin.exists(keys.parked(topic, "g"), keys.dead(topic))


async def test_a_negative_delay_is_refused(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    (entry,) = await lease(backend, topic, [1])
    with pytest.raises(ConfigurationError, match="delay"):
        await backend.settle(topic, "g", "c", parked=[Park(entry, -HOUR, 2)])
    assert admin.xpending(topic, "g")["pending"] == 1
