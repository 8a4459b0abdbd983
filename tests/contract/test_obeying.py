"""Commands that pause and resume a group: read by many, each at its own pace, and the last one counts."""

from itertools import permutations

import pytest
import redis

from penstock.backend import keys
from penstock.backend.redis import RedisBackend
from penstock.errors import ConfigurationError, WrongKeyTypeError
from tests.support.proxy import Proxy

COMMANDS = [("9-0", True), ("10-0", False), ("10-1", True)]
BIG = "18446744073709551615"


async def obey(backend: RedisBackend, topic: str, id: str, paused: bool, epoch: str = "aa") -> bool:
    return await backend.obey(topic, "g", paused=paused, epoch=epoch, command_id=id)


async def is_paused(backend: RedisBackend, topic: str) -> bool:
    return (await backend.watch(topic, "g")).paused


@pytest.mark.parametrize("order", list(permutations(COMMANDS)))
async def test_the_last_command_counts_in_whatever_order_they_are_obeyed(
    backend: RedisBackend, topic: str, order: tuple[tuple[str, bool], ...]
) -> None:
    for id, paused in order:
        await obey(backend, topic, id, paused)
    assert await is_paused(backend, topic)
    assert not await obey(backend, topic, "10-1", paused=True), "it was obeyed before"
    assert await obey(backend, topic, "10-2", paused=False)
    assert not await is_paused(backend, topic)


async def test_ids_are_compared_to_the_last_digit(backend: RedisBackend, topic: str) -> None:
    assert await obey(backend, topic, f"{BIG}-9007199254740993", paused=True)
    assert not await obey(backend, topic, f"{BIG}-9007199254740992", paused=False)
    assert await obey(backend, topic, f"{BIG}-9007199254740994", paused=False)
    assert not await is_paused(backend, topic)


async def test_a_control_topic_that_was_made_anew_is_obeyed_whatever_its_ids(backend: RedisBackend, topic: str) -> None:
    assert await obey(backend, topic, "100-0", paused=True)
    assert await obey(backend, topic, "1-0", paused=False, epoch="bb")
    assert not await is_paused(backend, topic)


async def test_what_an_operator_did_since_stays_until_the_next_command(backend: RedisBackend, topic: str) -> None:
    await obey(backend, topic, "1-0", paused=False)
    await backend.pause(topic, "g")
    assert not await obey(backend, topic, "1-0", paused=False)
    assert await is_paused(backend, topic)
    await obey(backend, topic, "2-0", paused=False)
    assert not await is_paused(backend, topic)


async def test_groups_do_not_share_their_commands(backend: RedisBackend, topic: str) -> None:
    await obey(backend, topic, "5-0", paused=True)
    assert await backend.obey(topic, "h", paused=True, epoch="aa", command_id="4-0")


async def test_nothing_changes_where_a_key_is_of_another_kind(
    backend: RedisBackend, topic: str, admin: "redis.Redis"
) -> None:
    for wrong, other in ((keys.paused(topic), keys.obeyed(topic)), (keys.obeyed(topic), keys.paused(topic))):
        admin.delete(wrong, other)
        admin.set(wrong, "x")
        with pytest.raises(WrongKeyTypeError, match="command 1-0"):
            await obey(backend, topic, "1-0", paused=True)
        assert not admin.exists(other)


async def test_a_command_whose_answer_is_lost_is_obeyed_all_the_same(
    wired: RedisBackend, proxy: Proxy, topic: str
) -> None:
    await obey(wired, topic, "1-0", paused=False)
    proxy.drop_reply_to("EVALSHA")
    await obey(wired, topic, "2-0", paused=True)
    assert proxy.dropped == 1
    assert await is_paused(wired, topic)


async def test_a_command_is_named_by_an_entry_id(backend: RedisBackend, topic: str) -> None:
    with pytest.raises(ConfigurationError, match="entry id"):
        await obey(backend, topic, "x", paused=True)
