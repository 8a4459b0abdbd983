"""`penstock bench`: a measurement of the user's own server that leaves no trace."""

import re

import pytest
import redis

from penstock.backend import keys
from penstock.cli import bench_sides
from penstock.errors import PublishError
from tests.support.command_line import CommandLine

FEW = ("--messages", "5000", "--rounds", "2", "--size", "50")


def everything(client: redis.Redis) -> dict[bytes, bytes]:
    return {key: client.dump(key) for key in client.scan_iter()}


def test_all_ways_are_measured_and_nothing_is_left_behind(penstock: CommandLine, client: redis.Redis) -> None:
    client.sadd(keys.TOPICS, "orders")
    client.xadd("orders", {"payload": "1"})
    before = everything(client)
    rows = penstock("bench", *FEW).rows
    assert everything(client) == before
    assert [row["what"] for row in rows] == ["publish"] * 3 + ["consume"] * 2
    assert all(row["rate"] > 0 and row["low"] <= row["of_raw"] <= row["high"] for row in rows)
    assert [row["of_raw"] for row in rows if "X" in row["way"]] == [1.0, 1.0]


def test_no_key_of_the_database_is_looked_for(penstock: CommandLine, client: redis.Redis) -> None:
    client.config_resetstat()
    penstock("bench", *FEW)
    sent = set(client.info("commandstats"))
    assert "cmdstat_unlink" in sent
    assert sent & {"cmdstat_scan", "cmdstat_keys"} == set()


def test_few_messages_are_told_to_mean_little_and_fewer_are_refused(
    penstock: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = r"5,000 messages took \d+ ms in the fastest of these, .* to mean much: give --messages \d+ or more"
    for shortest, is_told in ((100.0, True), (0.0, False)):
        monkeypatch.setattr("penstock.cli.bench._SHORTEST_SECONDS", shortest)
        done = penstock("bench", *FEW, "-o", "table")
        assert "publish_many" in done.out
        assert bool(re.search(told, done.err)) is is_told
    assert "at least 5,000, not 4,999" in penstock.refused("bench", "--messages", "4999", code=2)


def test_what_comes_first_is_not_timed_on_any_side() -> None:
    now = 0.0
    watch = bench_sides.Stopwatch(2, lambda: now)
    for _ in range(bench_sides.WARM):
        now += 100
        assert not watch.tick(None)
    ended = []
    for _ in range(2):
        now += 0.5
        ended.append(watch.tick(None))
    assert (ended, watch.rate) == ([False, True], 2.0)


def test_every_message_is_written_and_settled(penstock: CommandLine, client: redis.Redis) -> None:
    seen: dict[str, int] = {}

    def note(topic: str) -> None:
        (group,) = [one for one in client.xinfo_groups(topic) if one["name"] == b"bench"]
        seen[topic] = client.xlen(topic) - group["pending"] - (group["lag"] or 0)

    measured = {"consume_raw": bench_sides.consume_raw, "consume": bench_sides.consume}
    with pytest.MonkeyPatch.context() as patch:
        from penstock.cli import bench

        def raw(link: object, topic: str, count: int) -> float:
            rate = measured["consume_raw"](link, topic, count)
            note(topic)
            return float(rate)

        async def ours(app: object, topic: str, count: int) -> float:
            rate = await measured["consume"](app, topic, count)
            note(topic)
            return float(rate)

        patch.setattr(bench, "consume_raw", raw)
        patch.setattr(bench, "consume", ours)
        penstock("bench", "--messages", "5000", "--rounds", "1")
    assert list(seen.values()) == [5000 + bench_sides.WARM] * 2


def test_a_measurement_that_fails_cleans_up_too(
    penstock: CommandLine, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> float:
        raise PublishError("no more")

    monkeypatch.setattr("penstock.cli.bench.publish_each", fail)
    assert "no more" in penstock.refused("bench", *FEW, code=1)
    assert client.keys() == []


@pytest.mark.parametrize("option", ["--messages", "--rounds", "--size"])
def test_bad_usage_is_one_line(penstock: CommandLine, option: str) -> None:
    assert option in penstock.refused("bench", option, "0", code=2)
