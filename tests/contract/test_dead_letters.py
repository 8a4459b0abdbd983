"""Dead letters can be looked at, given back to the group that failed, and let go."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import ClaimedMessage, DeadLetter, Letter, Malformed, Park, Replayed, Settled
from penstock.backend.redis import RedisBackend
from penstock.errors import ConfigurationError, MalformedError, ServerOutOfMemoryError, WrongKeyTypeError
from penstock.message import fields
from penstock.message.message import Message
from penstock.message.wire import Wire
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.verbs import leased

NOW = timedelta(0)
HOUR = timedelta(hours=1)
LAST_ID = "18446744073709551615-18446744073709551615"


async def lease(backend: RedisBackend, topic: str, bodies: Sequence[object], group: str = "g") -> list[ClaimedMessage]:
    await backend.create_group(topic, group)
    await backend.publish_many(topic, [Message(body, key="k", headers={"a": "b"}) for body in bodies])
    entries = await backend.read_new(topic, group, "c", len(bodies), NOW)
    return [entry for entry in entries if isinstance(entry, ClaimedMessage)]


async def bury(backend: RedisBackend, topic: str, bodies: Sequence[object], group: str = "g") -> list[ClaimedMessage]:
    entries = await lease(backend, topic, bodies, group)
    letters = [DeadLetter(entry, "no use") for entry in entries]
    assert (await backend.settle(topic, group, "c", dead=letters)).ok == len(bodies)
    return entries


async def retried(backend: RedisBackend, topic: str, consumer: str = "c") -> list[ClaimedMessage]:
    entries = await backend.read_new(keys.retry(topic, "g"), "g", consumer, 1000, NOW)
    return [entry for entry in entries if isinstance(entry, ClaimedMessage)]


def bodies_of(letters: Sequence[Letter]) -> list[bytes]:
    return [letter.raw[letter.raw.index(b"payload") + 1] for letter in letters]


async def test_a_letter_says_where_it_comes_from_and_why_it_died(backend: RedisBackend, topic: str) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await backend.create_group(topic, "g")
    await backend.publish(topic, Message({"n": 1}, traceparent=trace))
    (entry,) = await backend.read_new(topic, "g", "c", 1, NOW)
    assert isinstance(entry, ClaimedMessage)
    traceback = "Traceback\n" + "x" * 20_000 + "\nValueError: \ud800 no"
    letter = DeadLetter(entry, "ValueError: no", {"try": "1"}, error="ValueError", traceback=traceback)
    await backend.settle(topic, "g", "c", dead=[letter])
    (read,) = await backend.read_dead(topic)
    record = read.record
    assert (record.topic, record.group, record.entry, record.attempts) == (topic, "g", entry.id, 1)
    assert (record.id, record.reason, record.error) == (entry.message.id, "ValueError: no", "ValueError")
    assert record.traceback.endswith("\nValueError: \\ud800 no")
    assert len(record.traceback) < 17_000
    assert (record.traceparent, record.details) == (trace, {"try": "1"})
    assert (record.first, record.last) == (entry.state.first_received, entry.state.last_received)
    assert (read.raw, read.broken) == (list(entry.raw), None)


async def test_the_trace_of_the_failed_attempt_goes_before_the_messages_own(backend: RedisBackend, topic: str) -> None:
    (entry,) = await lease(backend, topic, [1])
    await backend.settle(topic, "g", "c", dead=[DeadLetter(entry, "no", traceparent="00-aa-bb-01")])
    (read,) = await backend.read_dead(topic)
    assert read.record.traceparent == "00-aa-bb-01"


async def test_letters_come_in_order_page_by_page_from_either_end(backend: RedisBackend, topic: str) -> None:
    await bury(backend, topic, range(250))
    everything: list[Letter] = []
    while page := await backend.read_dead(topic, "(" + everything[-1].id if everything else "-", count=70):
        assert len(page) <= 70
        everything += page
    assert bodies_of(everything) == [b"%d" % number for number in range(250)]
    assert await backend.read_dead(topic, count=1000) == everything
    backwards = await backend.read_dead(topic, count=1000, backwards=True)
    assert backwards == everything[::-1]
    between = await backend.read_dead(topic, everything[20].id, "(" + everything[90].id, count=1000)
    assert between == everything[20:90]
    newest = await backend.read_dead(topic, everything[20].id, everything[90].id, count=15, backwards=True)
    assert newest == everything[76:91][::-1]


async def test_large_letters_come_a_few_at_a_time(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    await bury(backend, topic, ["x" * 400_000 for _ in range(30)])
    admin.config_resetstat()
    found = await backend.read_dead(topic, count=100)
    assert 20 < len(found) < 25  # about 8 MiB
    # Ten first, since nobody knows yet how large they are; then two at a time.
    assert admin.info("commandstats")["cmdstat_xrange"]["calls"] >= 6
    assert len(await backend.read_dead(topic, "(" + found[-1].id, count=100)) == 30 - len(found)


async def test_one_that_cannot_be_opened_does_not_hide_its_neighbours(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    spoilt: list[dict[bytes, bytes]] = [
        {b"payload": b"1"},
        {fields.DEAD: b"{"},
        {fields.DEAD: b"\xff" * 9, b"payload": b"1"},
        {fields.DEAD: b'{"x":' + b"[" * 100_000},
        {fields.DEAD: b'{"topic":"t"}'},
        {fields.DEAD: b'{"topic":"t","group":"g","entry":"1-1","attempts":1,"reason":"","first":"2020-01-01T00:00:00Z",'
         b'"last":"2020-01-01T00:00:00Z","packed":true}'},
    ]  # fmt: skip
    await bury(backend, topic, ["before"])
    for entry in spoilt:
        admin.xadd(keys.dead(topic), entry)
    await bury(backend, topic, ["after"])
    admin.xadd(keys.dead(topic), {"junk": "1"}, id="18446744073709551615-1")
    before, *bad, after, far = await backend.read_dead(topic)
    assert bodies_of([before, after]) == [b'"before"', b'"after"']
    assert [before.broken, after.broken] == [None, None]
    assert all(letter.broken and letter.record.reason == letter.broken for letter in [*bad, far])
    assert all("why it died cannot be read" in str(letter.broken) for letter in bad[1:5])
    assert [list(letter.raw) for letter in bad] == [[part for pair in one.items() for part in pair] for one in spoilt]
    assert all(letter.record.last.timestamp() > 1.7e9 for letter in bad)


async def test_a_replayed_letter_is_a_first_attempt_again_with_every_byte(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    (entry,) = await lease(backend, topic, [bytes(range(256))])
    await backend.settle(topic, "g", "c", parked=[Park(entry, NOW, 5)])
    await backend.promote(topic, "g")
    (tried,) = await retried(backend, topic)
    await backend.settle(tried.stream, "g", "c", dead=[DeadLetter(tried, "no")])
    (letter,) = await backend.read_dead(topic)
    assert await backend.replay_dead(topic, "g", [letter], "r1") == Replayed(ok=(letter.id,))
    assert not admin.xlen(keys.dead(topic))
    (again,) = await retried(backend, topic)
    assert again.message == entry.message
    assert (again.raw, again.origin) == (entry.raw, entry.id)
    assert (again.state.attempt, again.state.replay, again.state.replays) == (1, "r1", 1)
    assert again.state.first_received == entry.state.first_received


async def test_an_edited_letter_comes_with_other_fields_beside_those_that_keep_theirs(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    entries = await bury(backend, topic, [1, 2, 3])
    letters = await backend.read_dead(topic)
    other = Message({"n": "two"}, type="T")
    edited = {letters[1].id: Wire().pack(other)}
    assert await backend.replay_dead(topic, "g", letters, "r1", edited) == Replayed(ok=tuple(one.id for one in letters))
    assert not admin.xlen(keys.dead(topic))
    again = await retried(backend, topic)
    assert [entry.message for entry in again] == [entries[0].message, other, entries[2].message]
    assert [entry.origin for entry in again] == [entry.id for entry in entries]
    assert {(entry.state.attempt, entry.state.replay, entry.state.replays) for entry in again} == {(1, "r1", 1)}


async def test_what_was_lost_can_be_replayed_once_somebody_says_what_it_was(backend: RedisBackend, topic: str) -> None:
    lost = Malformed(
        "1-1", MalformedError(topic, "1-1", "lost", ()), leased(topic, "1-1").state, topic, "1-1", 0, lost=True
    )
    await backend.copy_dead(topic, "g", [DeadLetter(lost, "lost")])
    (letter,) = await backend.read_dead(topic)
    assert "only its id is left" in (await backend.replay_dead(topic, "g", [letter], "r")).refused[letter.id]
    message = Message("here it is")
    assert (await backend.replay_dead(topic, "g", [letter], "r", {letter.id: Wire().pack(message)})).ok == (letter.id,)
    (again,) = await retried(backend, topic)
    assert (again.message, again.origin) == (message, "1-1")


async def test_a_replay_stays_with_the_message_through_retries_and_its_next_death(
    backend: RedisBackend, topic: str
) -> None:
    await bury(backend, topic, [1])
    await backend.replay_dead(topic, "g", await backend.read_dead(topic), "r1")
    (entry,) = await retried(backend, topic)
    await backend.settle(entry.stream, "g", "c", parked=[Park(entry, NOW, 2)])
    await backend.promote(topic, "g")
    (entry,) = await retried(backend, topic)
    assert (entry.state.attempt, entry.state.replay, entry.state.replays) == (2, "r1", 1)
    await backend.settle(entry.stream, "g", "c", dead=[DeadLetter(entry, "again")])
    (letter,) = await backend.read_dead(topic)
    assert (letter.record.replay, letter.record.replays, letter.record.attempts) == ("r1", 1, 2)
    await backend.replay_dead(topic, "g", [letter], "r2")
    (entry,) = await retried(backend, topic)
    assert (entry.state.attempt, entry.state.replay, entry.state.replays) == (1, "r2", 2)
    assert entry.state.with_max_attempt(7).replays == 2


async def test_no_other_group_sees_a_replay(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    await backend.create_group(topic, "other")
    await bury(backend, topic, [1])
    await backend.replay_dead(topic, "g", await backend.read_dead(topic), "r1")
    assert admin.xlen(topic) == 1
    assert not admin.exists(keys.retry(topic, "other"))
    assert len(await backend.read_new(topic, "other", "c", 10, NOW)) == 1


async def test_replaying_twice_reports_gone_and_writes_once(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await bury(backend, topic, [1, 2])
    first, second = await backend.read_dead(topic)
    assert (await backend.replay_dead(topic, "g", [first], "r1")).ok == (first.id,)
    again = await backend.replay_dead(topic, "g", [first, second, second], "r2")
    assert again == Replayed(ok=(second.id,), gone=(first.id, second.id))
    assert admin.xlen(keys.retry(topic, "g")) == 2


async def test_a_lost_reply_to_a_replay_writes_once(
    wired: RedisBackend, proxy: Proxy, topic: str, admin: "redis.Redis"
) -> None:
    await bury(wired, topic, [1, 2])
    first, second = await wired.read_dead(topic)
    await wired.replay_dead(topic, "g", [first], "r1")
    proxy.drop_reply_to("EVALSHA")
    assert await wired.replay_dead(topic, "g", [second], "r1") == Replayed(gone=(second.id,))
    assert proxy.dropped == 1
    assert admin.xlen(keys.retry(topic, "g")) == 2
    assert not admin.xlen(keys.dead(topic))


async def test_what_cannot_be_replayed_says_why_and_stays(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await bury(backend, topic, ["fine"])
    await bury(backend, topic, ["another group's"], "other")
    (doomed,) = await lease(backend, topic, ["lost"])
    admin.xdel(topic, doomed.id)
    lost = await backend.reclaim_idle(topic, "g", "c", NOW, 1)
    admin.xadd(topic, {f"field {number}": "1" for number in range(1001)})
    *_, wide = await backend.read_new(topic, "g", "c", 10, NOW)
    assert isinstance(wide, Malformed)
    await backend.settle(topic, "g", "c", dead=[DeadLetter(entry, "no") for entry in [*lost, wide]])
    admin.zadd(keys.parked(topic, "g"), {b"junk": 0})
    await backend.promote(topic, "g")
    admin.xadd(keys.dead(topic), {"junk": "1"})
    fine, *others = letters = await backend.read_dead(topic)
    result = await backend.replay_dead(topic, "g", letters, "r1")
    assert (result.ok, result.gone) == ((fine.id,), ())
    reasons = ["group 'other'", "trimmed or deleted", "more fields", "nobody can open", "cannot be opened"]
    assert list(result.refused) == [letter.id for letter in others]
    for said, reason in zip(result.refused.values(), reasons, strict=True):
        assert reason in said
    assert await backend.read_dead(topic) == others
    elsewhere = await backend.replay_dead(topic + ":other", "other", others[:1], "r1")
    assert "died on topic" in elsewhere.refused[others[0].id]


async def test_a_malformed_letter_can_be_replayed_too(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    await backend.create_group(topic, "g")
    admin.xadd(topic, {"junk": b"\xff"})
    (entry,) = await backend.read_new(topic, "g", "c", 1, NOW)
    await backend.settle(topic, "g", "c", dead=[DeadLetter(entry, "malformed")])
    (letter,) = await backend.read_dead(topic)
    assert letter.record.id == ""
    assert (await backend.replay_dead(topic, "g", [letter], "r1")).ok
    (again,) = await backend.read_new(keys.retry(topic, "g"), "g", "c", 1, NOW)
    assert isinstance(again, Malformed)
    assert (again.raw, again.origin, again.state.replay) == ((b"junk", b"\xff"), entry.id, "r1")


async def test_a_letter_that_cannot_be_written_back_stays_a_letter(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await bury(backend, topic, [1])
    letters = await backend.read_dead(topic)
    admin.xadd(keys.retry(topic, "g"), {"a": "b"}, id=LAST_ID)
    result = await backend.replay_dead(topic, "g", letters, "r1")
    assert list(result.refused) == [letters[0].id]
    assert "retry stream" in result.refused[letters[0].id]
    assert await backend.read_dead(topic) == letters


@pytest.mark.parametrize("kind", ["retry", "dead"])
async def test_replaying_onto_another_kind_of_key_moves_nothing(
    backend: RedisBackend, topic: str, admin: "redis.Redis", kind: str
) -> None:
    await bury(backend, topic, [1])
    letters = await backend.read_dead(topic)
    key = keys.retry(topic, "g") if kind == "retry" else keys.dead(topic)
    admin.delete(key)
    admin.set(key, "in the way")
    with pytest.raises(WrongKeyTypeError, match=kind):
        await backend.replay_dead(topic, "g", letters, "r1")
    assert admin.get(key) == b"in the way"
    if kind == "retry":
        assert await backend.read_dead(topic) == letters
    else:
        assert not admin.exists(keys.retry(topic, "g"))


async def test_a_full_server_refuses_to_replay_and_keeps_the_letters(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await bury(backend, topic, [1, 2])
    letters = await backend.read_dead(topic)
    admin.config_set("maxmemory", 1)
    try:
        with pytest.raises(ServerOutOfMemoryError):
            await backend.replay_dead(topic, "g", letters, "r1")
        assert await backend.read_dead(topic) == letters
        assert await backend.purge_dead(topic, [letters[0].id]) == 1
    finally:
        admin.config_set("maxmemory", 0)
    assert not admin.exists(keys.retry(topic, "g"))


async def test_a_replay_that_makes_the_group_anew_fences_its_former_readers(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    (entry,) = await lease(backend, topic, [1])
    await backend.settle(topic, "g", "c", parked=[Park(entry, NOW, 2)])
    await backend.promote(topic, "g")
    (held,) = await retried(backend, topic, "before")
    await bury(backend, topic, [2])
    admin.xgroup_destroy(held.stream, "g")
    await backend.replay_dead(topic, "g", await backend.read_dead(topic), "r1")
    again, _ = await retried(backend, topic, "after")
    assert again.id == held.id
    assert await backend.settle(held.stream, "g", "before", done=[held]) == Settled(fenced=(held.id,))


async def test_a_replay_into_a_new_or_a_known_retry_stream_keeps_the_counters(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    for number in range(2):
        await bury(backend, topic, [number])
        await backend.replay_dead(topic, "g", await backend.read_dead(topic), "r1")
        assert admin.hlen(keys.steals(topic, "g")) == 1


async def test_replaying_what_is_gone_creates_nothing(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    await bury(backend, topic, [1])
    (letter,) = await backend.read_dead(topic)
    assert await backend.purge_dead(topic, [letter.id, "1-1"]) == 1
    assert await backend.purge_dead(topic, [letter.id]) == 0
    assert await backend.replay_dead(topic, "g", [letter], "r1") == Replayed(gone=(letter.id,))
    assert not admin.exists(keys.retry(topic, "g"))


async def test_concurrent_replays_move_each_letter_once(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    await bury(backend, topic, range(250))
    letters = await backend.read_dead(topic, count=1000)
    results = await asyncio.gather(*(backend.replay_dead(topic, "g", letters, f"r{n}") for n in range(4)))
    assert sorted(id for result in results for id in result.ok) == sorted(letter.id for letter in letters)
    assert all(len(result.ok) + len(result.gone) == 250 for result in results)
    assert admin.xlen(keys.retry(topic, "g")) == 250


async def test_many_letters_are_replayed_in_steps(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    await bury(backend, topic, [*("x" * 400_000 for _ in range(6)), *range(150)])
    letters: list[Letter] = []
    while page := await backend.read_dead(topic, "(" + letters[-1].id if letters else "-", count=1000):
        letters += page
    await backend.replay_dead(topic, "g", letters[:1], "r1")
    admin.config_resetstat()
    assert len((await backend.replay_dead(topic, "g", letters[1:], "r1")).ok) == 155
    # Three large ones; two large and 98 small ones; the rest.
    assert admin.info("commandstats")["cmdstat_evalsha"]["calls"] == 3


async def test_old_letters_and_too_many_fall_off_and_are_counted(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    node = int(admin.config_get("stream-node-max-entries")["stream-node-max-entries"])
    for number in range(1, 10 * node + 1):
        admin.xadd(keys.dead(topic), {"n": number}, id=f"{number}-1")
    assert await backend.count_dead(topic) == 10 * node
    assert await backend.bound_dead(topic, "0-0", 20 * node) == 0
    dropped = await backend.bound_dead(topic, f"{3 * node + 1}-1", 20 * node)
    assert dropped == 3 * node
    assert await backend.bound_dead(topic, "0-0", 5 * node) == 2 * node
    assert await backend.count_dead(topic) == 5 * node
    left = await backend.read_dead(topic, count=1)
    assert left[0].id == f"{5 * node + 1}-1"


async def test_bounding_takes_bounded_steps_and_never_a_letter_within_the_bounds(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    for number in range(1, 1001):
        admin.xadd(keys.dead(topic), {"n": number}, id=f"{number}-1")
    steps = []
    while dropped := await backend.bound_dead(topic, "450-1", 350, limit=200):
        steps.append(dropped)
    assert max(steps) <= 200
    left = await backend.read_dead(topic, count=1000)
    assert 350 <= len(left) == 1000 - sum(steps) < 450
    assert [letter.id for letter in left] == [f"{number}-1" for number in range(1001 - len(left), 1001)]


async def test_a_few_letters_are_bounded_to_the_last_one(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    for number in range(1, 21):
        admin.xadd(keys.dead(topic), {"n": number}, id=f"{number}-1")
    assert await backend.bound_dead(topic, "4-1", 100) == 3
    assert await backend.bound_dead(topic, "0-0", 5, limit=10) == 0  # twelve are too many, and one node holds them
    assert await backend.bound_dead(topic, "0-0", 5, limit=12) == 12
    assert [letter.id for letter in await backend.read_dead(topic)] == [f"{number}-1" for number in range(16, 21)]


async def test_a_copy_among_the_letters_leaves_the_entry_pending(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    (entry,) = await lease(backend, topic, [1])
    await backend.copy_dead(topic, "g", [DeadLetter(entry, "why")])
    await backend.copy_dead(topic, "", [DeadLetter(entry, "of nobody")])
    first, second = await backend.read_dead(topic)
    assert (first.record.reason, first.record.group, first.record.entry, first.raw) == ("why", "g", entry.id, entry.raw)
    assert admin.xpending(topic, "g")["pending"] == 1
    result = await backend.replay_dead(topic, "g", [first, second], "r")
    assert (result.ok, list(result.refused)) == ((first.id,), [second.id])


async def test_letters_can_be_kept_elsewhere(server: Server, topic: str, admin: "redis.Redis") -> None:
    def elsewhere(name: str) -> str:
        return keys.dead_under("dead:letters", name)

    async with await RedisBackend.connect(server.url, dead=elsewhere) as backend:
        (entry,) = await lease(backend, topic, [1])
        again = await backend.another()
        assert await again.settle(topic, "g", "c", dead=[DeadLetter(entry, "why")]) == Settled(ok=1)
        await again.aclose()
        view = backend.speaking({})
        assert [letter.record.reason for letter in await view.read_dead(topic)] == ["why"]
        assert (await backend.inspect(topic)).dead == await backend.count_dead(topic) == 1
        assert admin.xlen(f"dead:letters:{topic}") == 1
        assert not admin.exists(keys.dead(topic))
        await backend.replay_dead(topic, "g", await backend.read_dead(topic), "r")
        assert await backend.count_dead(topic) == 0


async def test_a_topic_without_dead_letters_has_none(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    assert await backend.read_dead(topic) == []
    assert await backend.count_dead(topic) == 0
    assert await backend.purge_dead(topic, ["1-1"]) == 0
    assert await backend.bound_dead(topic, "1-1", 0) == 0
    assert await backend.replay_dead(topic, "g", [], "r1") == Replayed()
    assert not admin.exists(keys.dead(topic))


async def test_what_cannot_be_meant_is_refused(backend: RedisBackend, topic: str) -> None:
    await bury(backend, topic, [1])
    letters = await backend.read_dead(topic)
    for replay_id in ("", "a\nb", "x" * 300):
        with pytest.raises(ConfigurationError, match="replay"):
            await backend.replay_dead(topic, "g", letters, replay_id)
    for call in (
        backend.read_dead(topic, "first"),
        backend.read_dead(topic, count=0),
        backend.purge_dead(topic, ["all"]),
        backend.bound_dead(topic, "old", 1),
        backend.bound_dead(topic, "0-0", -1),
        backend.bound_dead(topic, "0-0", 1, limit=0),
    ):
        with pytest.raises(ConfigurationError):
            await call
