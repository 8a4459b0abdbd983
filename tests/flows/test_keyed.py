"""A bus with order by key: one key in order, different ones beside each other, over several processes."""

import asyncio
import signal
import threading
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from penstock import (
    AckMode,
    Bus,
    ByKey,
    Delivery,
    Message,
    OnFailure,
    Reject,
    Retry,
    Sending,
    Subscription,
)
from penstock.backend import keys
from penstock.errors import ConfigurationError, EncodeError, HandlerTimeoutError, TopicError
from penstock.events import DeadLettered, Failed, Lost, PauseChanged, Started, Trouble
from penstock.keyed.partitions import names_of, partition_of, share_of
from tests.fault.keyed_worker import PARTITIONS
from tests.support.proxy import Proxy
from tests.support.sequential import Program, Setup
from tests.support.stage import Stage

BOTH = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)
QUICK = Retry(attempts=3, initial=timedelta(milliseconds=20), jitter=False)
LEASE = timedelta(seconds=3)
"""Long enough to be kept although the machine is busy for a second."""

SHORT = timedelta(seconds=1)


def keyed(stage: Stage, partitions: int = 4, ordering: Any = "key", **terms: Any) -> Bus:
    terms = {"group": "g", "retry": QUICK, "lease": LEASE} | terms
    return stage.app.bus(stage.topic, partitions=partitions, ordering=ordering, **terms)


def collecting(bus: Bus, wait: float = 0.0) -> dict[str, list[int]]:
    """What was handled, by key, in that order."""
    handled: dict[str, list[int]] = defaultdict(list)

    @bus.on(dict)
    async def collect(event: Delivery[dict[str, Any]]) -> None:
        await asyncio.sleep(wait)
        handled[event.key or ""].append(event.body["n"])

    return handled


def holders(stage: Stage, partitions: int) -> list[str | None]:
    """Who has each partition."""
    found = [stage.admin.hget(keys.turn(name, "g"), "holder") for name in names_of(stage.topic, partitions)]
    return [one.decode() if one else None for one in found]


def held(stage: Stage, partitions: int) -> dict[str, set[int]]:
    by_holder: dict[str, set[int]] = defaultdict(set)
    for number, holder in enumerate(holders(stage, partitions)):
        if holder is not None:
            by_holder[holder].add(number)
    return by_holder


@asynccontextmanager
async def at_work(stage: Stage, bus: Bus) -> AsyncIterator[None]:
    """Run the bus from here to the end of the block, and see that it ends in good order."""
    already = len(stage.told(Started))
    run = stage.start(bus)
    try:
        await stage.until(lambda: len(stage.told(Started)) > already)
        yield
    finally:
        stage.app.stop()
        async with asyncio.timeout(20):
            await run
        stage.run = None


def test_a_key_belongs_to_the_same_partition_everywhere() -> None:
    assert [partition_of(key, 16) for key in ("", "a", "o-1", "ключ")] == [0, 3, 10, 10]
    assert all(partition_of(f"k{n}", 7) == crc32(f"k{n}".encode()) % 7 for n in range(100))
    assert names_of("orders", 3) == ["orders:p0", "orders:p1", "orders:p2"]


@pytest.mark.parametrize("count", [1, 7, 16])
@pytest.mark.parametrize("members", [1, 2, 3, 5, 20])
def test_shares_add_up_and_differ_by_one_at_most(count: int, members: int) -> None:
    names = [f"m{n:02}" for n in range(members)]
    shares = [share_of(count, names, name) for name in names]
    assert sum(shares) == count
    assert max(shares) - min(shares) <= 1
    assert share_of(count, names, "stranger") == 0


@BOTH
async def test_each_key_is_handled_in_order(stage: Stage) -> None:
    bus = keyed(stage)
    handled = collecting(bus)
    for number in range(60):
        await bus.publish({"n": number}, key=f"k{number % 7}")
    receipts = await bus.publish_many(Message({"n": number}, key=f"k{number % 7}") for number in range(60, 200))
    assert [receipt.topic for receipt in receipts] == [
        f"{stage.topic}:p{partition_of(f'k{number % 7}', 4)}" for number in range(60, 200)
    ]
    async with at_work(stage, bus):
        await stage.until(lambda: sum(map(len, handled.values())) == 200)
    assert handled == {f"k{key}": [n for n in range(200) if n % 7 == key] for key in range(7)}
    for name in names_of(stage.topic, 4):
        (row,) = [row for row in stage.admin.xinfo_groups(name) if row["name"] == b"g"]
        assert (row["lag"], row["pending"]) == (0, 0)


async def test_different_keys_are_handled_beside_each_other(stage: Stage) -> None:
    bus = keyed(stage)
    together = asyncio.Barrier(2)

    @bus.on(dict)
    async def meet(event: Delivery[Any]) -> None:
        async with asyncio.timeout(20):
            await together.wait()

    for key in ("a", "k1"):  # of different partitions
        await bus.publish({}, key=key)
    async with at_work(stage, bus):
        await stage.until(lambda: not any(stage.left("g", f"{stage.topic}:p{n}")["topic unread"] for n in range(4)))


async def test_partitions_are_shared_out_evenly_and_stay_where_they_are(stage: Stage) -> None:
    def is_even(processes: int) -> bool:
        sizes = sorted(map(len, held(stage, 16).values()))
        return len(sizes) == processes and sum(sizes) == 16 and sizes[-1] - sizes[0] <= 1

    async with stage.another() as second, stage.another() as third:
        buses = [keyed(one, 16) for one in (stage, second, third)]
        for bus in buses:
            collecting(bus)
        async with at_work(stage, buses[0]):
            await stage.until(lambda: is_even(1))
            (first,) = held(stage, 16)
            async with at_work(second, buses[1]):
                await stage.until(lambda: is_even(2))
                both = held(stage, 16)
                async with at_work(third, buses[2]):
                    await stage.until(lambda: is_even(3))
                    for holder, kept in both.items():
                        assert held(stage, 16)[holder] <= kept, "only what was too much was given up"
                await stage.until(lambda: is_even(2))
                assert set(held(stage, 16)) == set(both)
            await stage.until(lambda: held(stage, 16).get(first) == set(range(16)))
    await stage.until(lambda: not any(holders(stage, 16)))


@pytest.mark.parametrize("name", [None, "worker"])
async def test_a_partition_is_never_had_by_two(stage: Stage, name: str | None) -> None:
    running: dict[str, int] = defaultdict(int)
    handled = 0

    def watching(bus: Bus) -> None:
        @bus.on(dict)
        async def handle(event: Delivery[Any]) -> None:
            nonlocal handled
            running[event.topic] += 1
            assert running[event.topic] == 1
            await asyncio.sleep(0.002)
            running[event.topic] -= 1
            handled += 1

    async with stage.another() as second, stage.another() as third:
        buses = [keyed(one, 6, options=Subscription(consumer=name)) for one in (stage, second, third)]
        for bus in buses:
            watching(bus)
        await buses[0].publish_many(Message({"n": n}, key=f"k{n % 50}") for n in range(1200))
        async with at_work(stage, buses[0]):
            async with at_work(second, buses[1]):
                await stage.until(lambda: handled > 300)
                async with at_work(third, buses[2]):
                    await stage.until(lambda: handled > 600)
            await stage.until(lambda: handled >= 1200)
    assert handled == 1200, "nobody died, so nothing was repeated"


async def test_what_a_process_had_that_was_killed_is_taken_over_after_its_lease(stage: Stage, tmp_path: Path) -> None:
    bus = keyed(stage, PARTITIONS, lease=SHORT)
    collecting(bus)
    setup = Setup(str(tmp_path / "log"), stage.topic, reader="g", lease=SHORT.total_seconds())
    program = Program(setup, stage.url, "tests.fault.keyed_worker")
    try:
        await stage.until(lambda: sum(map(len, held(stage, PARTITIONS).values())) == PARTITIONS, within=15)
        async with at_work(stage, bus):
            await stage.until(lambda: sorted(map(len, held(stage, PARTITIONS).values())) == [PARTITIONS // 2] * 2)
            program.signal(signal.SIGKILL)
            await stage.until(lambda: list(map(len, held(stage, PARTITIONS).values())) == [PARTITIONS])
    finally:
        program.end()


async def test_a_failing_key_goes_to_the_dead_letters_and_the_rest_of_its_partition_goes_on(stage: Stage) -> None:
    bus = keyed(stage, 2)
    seen: list[tuple[str | None, int, int]] = []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        seen.append((event.key, event.body["n"], event.attempt))
        if event.body["n"] == 0:
            raise ValueError("always")
        if event.body["n"] == 2:
            raise Reject("unwanted")

    for number in range(4):
        await bus.publish({"n": number}, key="same")
    async with at_work(stage, bus):
        await stage.until(lambda: ("same", 3, 1) in seen)
    assert seen == [("same", 0, 1), ("same", 0, 2), ("same", 0, 3), ("same", 1, 1), ("same", 2, 1), ("same", 3, 1)]
    letters = [letter async for letter in bus.dead]
    assert [(letter.attempts, letter.reason) for letter in letters] == [(3, "ValueError: always"), (1, "unwanted")]
    assert [one.attempts for one in stage.told(DeadLettered)] == [3, 1]


async def test_a_failing_key_stops_its_partition_and_no_other(stage: Stage) -> None:
    bus = keyed(stage, 4, ByKey(on_failure=OnFailure.STOP))
    healed = asyncio.Event()
    handled: list[str | None] = []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        if event.key == "a" and not healed.is_set():
            raise ValueError("not yet")
        handled.append(event.key)

    for key in ("a", "a", "k1"):
        await bus.publish({"n": 0}, key=key)
    async with at_work(stage, bus):
        await stage.until(lambda: len(stage.told(Failed)) > 4)
        assert handled == ["k1"]
        healed.set()
        await stage.until(lambda: len(handled) == 3)
    assert not [letter async for letter in bus.dead]


async def test_what_cannot_be_read_or_is_missing_stops_no_partition(stage: Stage) -> None:
    bus = keyed(stage, 1)
    handled = collecting(bus)
    for number in range(5):
        await bus.publish({"n": number}, key="a")
    stage.admin.xadd(f"{stage.topic}:p0", {"payload": "{not json"})
    await bus.publish({"n": 5}, key="a")
    async with at_work(stage, bus):
        await stage.until(lambda: len(handled["a"]) == 6)
    assert len([letter async for letter in bus.dead]) == 1
    for number in range(6, 9):
        await bus.publish({"n": number}, key="a")
    stage.admin.xtrim(f"{stage.topic}:p0", maxlen=1, approximate=False)
    async with at_work(stage, bus):
        await stage.until(lambda: handled["a"][-1] == 8)
    assert [(one.count, one.reason) for one in stage.told(Lost)] == [(2, "trimmed")]


async def test_a_handler_that_takes_too_long_is_cancelled_and_tried_again(stage: Stage) -> None:
    bus = keyed(stage, 1, options=Subscription(timeout=timedelta(seconds=0.2)))
    attempts: list[int] = []

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        attempts.append(event.attempt)
        if event.attempt == 1:
            await asyncio.sleep(60)

    await bus.publish({}, key="a")
    async with at_work(stage, bus):
        await stage.until(lambda: attempts == [1, 2])
    assert [type(one.error) for one in stage.told(Failed)] == [HandlerTimeoutError]


async def test_plain_functions_run_in_threads(stage: Stage) -> None:
    bus = keyed(stage, 2)
    handled: list[tuple[int, bool]] = []

    @bus.on(dict)
    def handle(event: Delivery[Any]) -> None:
        handled.append((event.body["n"], threading.current_thread() is threading.main_thread()))

    for number in range(20):
        await bus.publish({"n": number}, key="a")
    async with at_work(stage, bus):
        await stage.until(lambda: len(handled) == 20)
    assert handled == [(number, False) for number in range(20)]


async def test_stopping_lets_what_runs_end_and_frees_the_partitions(stage: Stage) -> None:
    bus = keyed(stage, 2)
    handled: list[int] = []
    begun = asyncio.Event()

    @bus.on(dict)
    async def handle(event: Delivery[Any]) -> None:
        begun.set()
        await asyncio.sleep(0.2)
        handled.append(event.body["n"])

    for number in range(10):
        await bus.publish({"n": number}, key="a")
    async with at_work(stage, bus):
        await begun.wait()
    assert handled == [0]
    assert holders(stage, 2) == [None, None]
    async with at_work(stage, bus):
        await stage.until(lambda: len(handled) == 10)
    assert handled == list(range(10))


async def test_a_thread_that_goes_on_after_the_end_is_not_followed_before_its_lease(stage: Stage) -> None:
    bus = keyed(stage, 1, lease=timedelta(seconds=30), options=Subscription(drain=timedelta(seconds=0.1)))
    begun, may_end = threading.Event(), threading.Event()

    @bus.on(dict)
    def work(event: Delivery[Any]) -> None:
        begun.set()
        may_end.wait(20)

    await bus.publish({"n": 0}, key="a")
    try:
        async with at_work(stage, bus):
            await stage.until(begun.is_set)
        assert holders(stage, 1) != [None], "another would work on the same key beside it"
        assert any("did not end in time" in str(one.error) for one in stage.told(Trouble))
    finally:
        may_end.set()


async def test_a_pause_stops_every_partition_until_it_is_taken_back(stage: Stage) -> None:
    bus = keyed(stage, 2)
    handled = collecting(bus)
    async with at_work(stage, bus):
        await bus.pause()
        await stage.until(lambda: stage.told(PauseChanged) and not any(holders(stage, 2)))
        await bus.publish({"n": 1}, key="a")
        await asyncio.sleep(0.3)
        assert not handled
        await bus.resume()
        await stage.until(lambda: handled == {"a": [1]})


async def test_who_publishes_by_the_old_number_meanwhile_is_told_of(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.keyed.keyed_bus._CHECK_SECONDS", 2.0)
    bus, publisher = keyed(stage, 4), keyed(stage, 4)
    await publisher.publish_many([])  # it has asked for the number, and does not ask again for a while
    changing = asyncio.create_task(bus.repartition(2))  # type: ignore[attr-defined]
    await stage.until(lambda: stage.admin.get(keys.partitions(stage.topic)) == b"2")
    await publisher.publish({"n": 0}, key="a")
    with pytest.raises(TopicError, match="has 2 partitions now, but somebody published for 4 meanwhile"):
        await changing
    with pytest.raises(ConfigurationError, match="has 2 partitions"):
        await publisher.publish({"n": 1}, key="a")


async def test_another_number_of_partitions_is_refused_until_it_was_changed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.keyed.keyed_bus._CHECK_SECONDS", 0.1)
    bus = keyed(stage, 4)
    handled = collecting(bus)
    await bus.publish({"n": 0}, key="a")
    with pytest.raises(TopicError, match="not empty"):
        await bus.repartition(8)  # type: ignore[attr-defined]
    other = keyed(stage, 8)
    collecting(other)
    with pytest.raises(ConfigurationError, match="has 4 partitions, not 8"):
        await other.publish({"n": 1}, key="a")
    with pytest.raises(ConfigurationError, match="has 4 partitions"):
        await stage.app.run(other, signals=False)
    async with at_work(stage, bus):
        await stage.until(lambda: handled == {"a": [0]})
    await bus.publish({"n": 1}, key="a")
    with pytest.raises(TopicError, match="not empty"):
        await bus.repartition(8)  # type: ignore[attr-defined]
    async with at_work(stage, bus):
        await stage.until(lambda: handled == {"a": [0, 1]})
    for number in range(4):
        stage.admin.xgroup_create(f"{stage.topic}:p{number}", "late", "$")
    stage.admin.xgroup_destroy(bus.topics[partition_of("a", 4)], "late")
    with pytest.raises(TopicError, match="'late' has not handled"):
        await bus.repartition(8)  # type: ignore[attr-defined]
    stage.admin.xgroup_create(bus.topics[partition_of("a", 4)], "late", "$")
    await bus.repartition(8)  # type: ignore[attr-defined]
    with pytest.raises(TopicError, match="renumbered"):
        await bus.repartition(8)  # type: ignore[attr-defined]
    renumbered = collecting(fresh := keyed(stage, 8))
    async with at_work(stage, fresh):
        await fresh.publish({"n": 2}, key="a")
        await stage.until(lambda: renumbered == {"a": [2]})


@pytest.mark.parametrize(
    "terms",
    [
        {"partitions": 4},
        {"ordering": "key"},
        {"partitions": 0, "ordering": "key"},
        {"partitions": 5000, "ordering": "key"},
        {"partitions": 4, "ordering": "topic"},
        {"partitions": 4, "ordering": "key", "group": "g", "options": Subscription(ack=AckMode.MANUAL)},
        {"partitions": 4, "ordering": "key", "group": "g", "options": Subscription(dedupe=timedelta(hours=1))},
    ],
)
async def test_terms_that_cannot_work_are_refused_where_they_are_written(stage: Stage, terms: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        stage.app.bus(stage.topic, **terms)
    with pytest.raises(ConfigurationError):
        ByKey(coalesce=0)


async def test_a_full_server_is_drained_by_who_comes_anew(stage: Stage) -> None:
    bus = keyed(stage, 2)
    handled = collecting(bus)
    for n in range(6):
        await bus.publish({"n": n}, key=f"k{n}")
    stage.admin.config_set("maxmemory", 1)
    try:
        async with at_work(stage, bus):
            await stage.until(lambda: len(handled) == 6)
    finally:
        stage.admin.config_set("maxmemory", 0)


async def test_partitions_that_a_server_forgot_are_read_on_from_their_beginning(stage: Stage) -> None:
    bus = keyed(stage, 2, start="latest")
    handled = collecting(bus)
    async with at_work(stage, bus):
        names = names_of(stage.topic, 2)
        await stage.until(lambda: stage.admin.exists(*names) == 2)  # they are when they are read
        stage.admin.delete(*names, *(keys.turn(name, "g") for name in names))
        for n in range(6):
            await bus.publish({"n": n}, key=f"k{n}")
        await stage.until(lambda: sorted(handled) == [f"k{n}" for n in range(6)])


async def test_what_has_no_order_is_refused(stage: Stage) -> None:
    bus = keyed(stage)
    for key in ("", 5, b"a", "\ud800"):
        with pytest.raises(EncodeError, match="key"):
            await bus.publish({"n": 1}, key=key)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="without delay"):
        await bus.publish({}, key="a", sending=Sending(delay=timedelta(seconds=1)))

    @bus.on(dict, batch=5)
    async def handle(events: list[Delivery[Any]]) -> None:
        raise AssertionError

    with pytest.raises(ConfigurationError, match="batch"):
        await stage.app.run(bus, signals=False)


@BOTH
@pytest.mark.parametrize("is_rejected", [True, False])
async def test_what_became_of_a_message_is_made_known_though_the_worker_stops_meanwhile(
    stage: Stage, proxy: Proxy, is_rejected: bool
) -> None:
    async with Stage(proxy.url, stage.admin, stage.topic) as far:
        bus, calls = keyed(far, 1, ByKey(coalesce=1)), list[int]()

        @bus.on(dict)
        async def handle(event: Delivery[dict[str, Any]]) -> None:
            calls.append(event.body["n"])
            if event.body["n"] < 3:
                return
            proxy.stall()
            far.app.stop()
            asyncio.get_running_loop().call_later(0.3, proxy.flow)
            if is_rejected:
                raise Reject("no use")

        *_, last = [(await bus.publish({"n": n}, key="k")).entry_id for n in range(4)]
        await far.app.run(bus, signals=False)
    (partition,) = names_of(stage.topic, 1)
    assert (calls, stage.admin.xlen(keys.dead(partition))) == ([0, 1, 2, 3], int(is_rejected))
    (group,) = [one for one in stage.admin.xinfo_groups(partition) if one["name"] == b"g"]
    assert group["last-delivered-id"].decode() == last, "and it is behind that"
