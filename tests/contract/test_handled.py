"""No message is handled twice by a group that asks for it, however often it was published, and a replay is new."""

import asyncio
from datetime import timedelta

import pytest
import redis

from penstock.backend import keys
from penstock.backend.entry import Claim, ClaimedMessage, DeadLetter, Handling, Park, Settled
from penstock.backend.redis import RedisBackend
from penstock.errors import ConfigurationError, WrongKeyTypeError
from penstock.message.ids import new_id
from penstock.message.message import Message
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.support.waiting import ENOUGH

NOW = timedelta(0)
HOUR = timedelta(hours=1)
NEW, DONE, BUSY = Handling.NEW, Handling.DONE, Handling.BUSY


def claim(entry: ClaimedMessage) -> Claim:
    return entry.message.id, entry.state.replay, entry.origin


async def lease(backend: RedisBackend, topic: str, messages: list[Message[int]]) -> list[ClaimedMessage]:
    await backend.create_group(topic, "g")
    await backend.publish_many(topic, messages)
    entries = await backend.read_new(topic, "g", "c", len(messages), NOW)
    return [entry for entry in entries if isinstance(entry, ClaimedMessage)]


async def test_of_two_entries_of_one_message_one_is_handled(backend: RedisBackend, topic: str) -> None:
    message = Message(1)
    first, second = await lease(backend, topic, [message, message])
    assert await backend.claim_handling(topic, "g", [claim(first), claim(second)], HOUR) == [NEW, BUSY]
    assert await backend.claim_handling(topic, "g", [claim(second)], HOUR) == [BUSY]
    assert await backend.complete_handling(topic, "g", "c", [first], HOUR) == Settled(ok=1)
    assert await backend.claim_handling(topic, "g", [claim(second)], HOUR) == [DONE]


async def test_concurrent_claimants_of_one_message_are_told_apart(server: Server, topic: str) -> None:
    backends = [await RedisBackend.connect(server.url) for _ in range(4)]
    id = new_id()
    verdicts = await asyncio.gather(
        *(
            backend.claim_handling(topic, "g", [(id, "", f"{number}-{turn}")], HOUR)
            for number, backend in enumerate(backends)
            for turn in range(10)
        )
    )
    assert sorted(verdict.value for (verdict,) in verdicts) == ["busy"] * 39 + ["new"]
    for backend in backends:
        await backend.aclose()


async def test_the_same_entry_may_claim_again(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    id = new_id()
    key = keys.handled(topic, "g", id)
    assert await backend.claim_handling(topic, "g", [(id, "", "1-1")], timedelta(seconds=90)) == [NEW]
    assert 80_000 < admin.pttl(key) <= 90_000
    assert await backend.claim_handling(topic, "g", [(id, "", "1-1")], HOUR) == [NEW]
    assert 3_500_000 < admin.pttl(key) <= 3_600_000


async def test_a_claim_that_ran_out_is_free(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    id = new_id()
    await backend.claim_handling(topic, "g", [(id, "", "1-1")], timedelta(milliseconds=1))
    async with asyncio.timeout(ENOUGH):
        while await backend.claim_handling(topic, "g", [(id, "", "2-1")], HOUR) != [NEW]:
            await asyncio.sleep(0.001)


async def test_groups_and_replays_are_told_apart(backend: RedisBackend, topic: str) -> None:
    await backend.create_group(topic, "other")
    (entry,) = await lease(backend, topic, [Message(1)])
    await backend.complete_handling(topic, "g", "c", [entry], HOUR)
    id, _, origin = claim(entry)
    again: list[Claim] = [(id, "", origin), (id, "r1", origin), (id, "r2", "5-5"), (id.upper(), "", origin)]
    assert await backend.claim_handling(topic, "g", again, HOUR) == [DONE, NEW, NEW, DONE]
    assert await backend.claim_handling(topic, "other", again[:1], HOUR) == [NEW]


async def test_what_is_done_is_noted_for_its_window_and_acked_in_one_step(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    (entry,) = await lease(backend, topic, [Message(1)])
    assert await backend.complete_handling(topic, "g", "c", [entry], timedelta(seconds=90)) == Settled(ok=1)
    assert 80_000 < admin.pttl(keys.handled(topic, "g", entry.message.id)) <= 90_000
    assert admin.xpending(topic, "g")["pending"] == 0
    assert await backend.complete_handling(topic, "g", "c", [entry], HOUR) == Settled(gone=1, unclear=(entry.id,))


async def test_whoever_lost_an_entry_notes_nothing(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    lost, kept, acked = await lease(backend, topic, [Message(1), Message(2), Message(3)])
    await backend.reclaim_idle(topic, "g", "heir", NOW, 1)
    await backend.ack(topic, "g", acked.id)
    result = await backend.complete_handling(topic, "g", "c", [lost, kept, acked], HOUR)
    assert result == Settled(1, 1, (lost.id,), (acked.id,))
    assert not admin.exists(keys.handled(topic, "g", lost.message.id), keys.handled(topic, "g", acked.message.id))
    assert admin.get(keys.handled(topic, "g", kept.message.id)) == b"done"
    assert [row["message_id"].decode() for row in admin.xpending_range(topic, "g", "-", "+", 9)] == [lost.id]


async def test_a_completed_retry_leaves_nothing_behind(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    (entry,) = await lease(backend, topic, [Message(1)])
    await backend.claim_handling(topic, "g", [claim(entry)], HOUR)
    await backend.settle(topic, "g", "c", parked=[Park(entry, NOW, 2)])
    await backend.promote(topic, "g")
    retry = keys.retry(topic, "g")
    (again,) = await backend.read_new(retry, "g", "c", 1, NOW)
    assert isinstance(again, ClaimedMessage)
    assert await backend.claim_handling(topic, "g", [claim(again)], HOUR) == [NEW]
    admin.hset(keys.starts(topic, "g"), mapping={f"retry/{again.id}": "1 a", f"topic/{again.id}": "1 b"})
    assert await backend.complete_handling(retry, "g", "c", [again], HOUR) == Settled(ok=1)
    assert admin.xlen(retry) == 0
    assert admin.hgetall(keys.starts(topic, "g")) == {f"topic/{again.id}".encode(): b"1 b"}
    assert admin.get(keys.handled(topic, "g", entry.message.id)) == b"done"


async def test_a_replayed_message_is_noted_as_that_replay(backend: RedisBackend, topic: str) -> None:
    (entry,) = await lease(backend, topic, [Message(1)])
    await backend.settle(topic, "g", "c", dead=[DeadLetter(entry, "no")])
    await backend.replay_dead(topic, "g", await backend.read_dead(topic), "r1")
    (again,) = await backend.read_new(keys.retry(topic, "g"), "g", "c", 1, NOW)
    assert isinstance(again, ClaimedMessage)
    await backend.complete_handling(again.stream, "g", "c", [again], HOUR)
    id, origin = entry.message.id, entry.origin
    three: list[Claim] = [(id, "", origin), (id, "r1", origin), (id, "r2", origin)]
    assert await backend.claim_handling(topic, "g", three, HOUR) == [NEW, DONE, NEW]


async def test_a_claim_can_be_given_back_but_not_what_is_done_or_anothers(backend: RedisBackend, topic: str) -> None:
    mine, others = (new_id(), "", "1-1"), (new_id(), "", "2-1")
    (entry,) = await lease(backend, topic, [Message(1)])
    await backend.complete_handling(topic, "g", "c", [entry], HOUR)
    await backend.claim_handling(topic, "g", [mine, others], HOUR)
    back: list[Claim] = [mine, (others[0], "", "3-1"), claim(entry)]
    assert await backend.release_handling(topic, "g", back) == 1
    assert await backend.release_handling(topic, "g", back) == 0
    then: list[Claim] = [(mine[0], "", "9-1"), (others[0], "", "9-1"), claim(entry)]
    assert await backend.claim_handling(topic, "g", then, HOUR) == [NEW, BUSY, DONE]


async def test_more_than_one_script_takes(backend: RedisBackend, topic: str, admin: "redis.Redis") -> None:
    entries = await lease(backend, topic, [Message(number) for number in range(250)])
    claims = [claim(entry) for entry in entries]
    assert await backend.claim_handling(topic, "g", claims, HOUR) == [NEW] * 250
    assert await backend.release_handling(topic, "g", claims[:101]) == 101
    assert await backend.complete_handling(topic, "g", "c", entries, HOUR) == Settled(ok=250)
    assert await backend.claim_handling(topic, "g", claims, HOUR) == [DONE] * 250
    assert admin.xpending(topic, "g")["pending"] == 0


async def test_a_lost_reply_changes_no_verdict(wired: RedisBackend, proxy: Proxy, topic: str) -> None:
    before, entry = await lease(wired, topic, [Message(0), Message(1)])
    await wired.claim_handling(topic, "g", [claim(before)], HOUR)
    await wired.complete_handling(topic, "g", "c", [before], HOUR)
    proxy.drop_reply_to("EVALSHA")
    assert await wired.claim_handling(topic, "g", [claim(entry)], HOUR) == [NEW]
    proxy.drop_reply_to("EVALSHA")
    assert await wired.complete_handling(topic, "g", "c", [entry], HOUR) == Settled(gone=1, unclear=(entry.id,))
    assert proxy.dropped == 2
    assert await wired.claim_handling(topic, "g", [(entry.message.id, "", "9-9")], HOUR) == [DONE]


@pytest.mark.parametrize("where", ["handled", "starts"])
async def test_another_kind_of_value_in_the_way_changes_nothing(
    backend: RedisBackend, topic: str, admin: "redis.Redis", where: str
) -> None:
    good, bad = await lease(backend, topic, [Message(1), Message(2)])
    spoilt = keys.handled(topic, "g", bad.message.id) if where == "handled" else keys.starts(topic, "g")
    admin.rpush(spoilt, "in the way")
    with pytest.raises(WrongKeyTypeError, match=topic):
        await backend.complete_handling(topic, "g", "c", [good, bad], HOUR)
    if where == "handled":
        with pytest.raises(WrongKeyTypeError, match=topic):
            await backend.claim_handling(topic, "g", [claim(good), claim(bad)], HOUR)
    assert not admin.exists(keys.handled(topic, "g", good.message.id))
    assert admin.xpending(topic, "g")["pending"] == 2


async def test_a_full_server_lets_messages_be_handled_to_their_end(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    (entry,) = await lease(backend, topic, [Message(1)])
    admin.config_set("maxmemory", 1)
    try:
        assert await backend.claim_handling(topic, "g", [claim(entry)], HOUR) == [NEW]
        assert await backend.release_handling(topic, "g", [claim(entry)]) == 1
        assert await backend.complete_handling(topic, "g", "c", [entry], HOUR) == Settled(ok=1)
    finally:
        admin.config_set("maxmemory", 0)


async def test_what_cannot_be_meant_is_refused(backend: RedisBackend, topic: str) -> None:
    (entry,) = await lease(backend, topic, [Message(1)])
    with pytest.raises(ConfigurationError, match="UUID"):
        await backend.claim_handling(topic, "g", [("42", "", "1-1")], HOUR)
    with pytest.raises(ConfigurationError, match="entry"):
        await backend.claim_handling(topic, "g", [(new_id(), "", "done")], HOUR)
    with pytest.raises(ConfigurationError, match="lease"):
        await backend.claim_handling(topic, "g", [claim(entry)], NOW)
    with pytest.raises(ConfigurationError, match="window"):
        await backend.complete_handling(topic, "g", "c", [entry], NOW)
    with pytest.raises(ConfigurationError, match="by stream"):
        await backend.complete_handling(topic + ":other", "g", "c", [entry], HOUR)
