"""The manager's options are checked when they are made, and its server is where the environment says."""

from datetime import timedelta
from typing import Any

import pytest
from redis.crc import key_slot

from penstock.errors import ConfigurationError
from penstock.manager import ConsumerGroupConfig, DLQConfig, StreamMessage, StreamType
from penstock.manager.configuration import default_groups, stream_name
from penstock.manager.place import server_url


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"name": ""}, "group"),
        ({"name": "penstock"}, "Penstock's own"),
        ({"streams": []}, "list of streams"),
        ({"streams": "orders"}, "list of streams"),
        ({"streams": ["a", "a"]}, "twice"),
        ({"streams": ["penstock:x"]}, "may not start with"),
        ({"streams": [1]}, "non-empty string"),
        ({"consumer_prefix": ""}, "consumer"),
        ({"consumer_prefix": "x" * 250}, "consumer"),
        ({"block_ms": -1}, "block_ms"),
        ({"batch_size": 0}, "batch_size"),
        ({"claim_idle_ms": -1}, "claim_idle_ms"),
    ],
)
def test_a_group_that_cannot_be_meant_is_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        ConsumerGroupConfig(**{"name": "g", "streams": ["s"], **options})


@pytest.mark.parametrize(
    "options",
    [
        {"enabled": 1},
        {"max_retention_seconds": 0},
        {"retry_limit": -1},
        {"retry_backoff_seconds": -1},
        {"dlq_prefix": ""},
        {"max_len": 0},
    ],
)
def test_a_dlq_that_cannot_be_meant_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        DLQConfig(**options)


def test_a_retry_waits_twice_as_long_each_time_but_no_longer_than_a_day() -> None:
    retry = DLQConfig(retry_limit=20).retry
    assert retry.attempts == 21
    assert [retry.delay(attempt).total_seconds() for attempt in (1, 2, 3, 4)] == [60, 120, 240, 480]
    assert retry.delay(20) == timedelta(days=1)
    assert DLQConfig(retry_backoff_seconds=200_000).retry.delay(3) == timedelta(seconds=200_000)


def test_dead_letters_have_a_stream_of_their_own() -> None:
    def one_slot(_: str) -> int:
        return 0

    assert DLQConfig().stream_of("xnai:agent_bus", one_slot) == "xnai:dlq:xnai:agent_bus"
    assert DLQConfig(dlq_prefix="dead").stream_of("s", one_slot) == "dead:s"


def test_in_a_cluster_dead_letters_lie_beside_their_stream() -> None:
    def slot(name: str) -> int:
        return key_slot(name.encode())

    for stream, dead in (("s", "dead:{s}"), ("a:b", "dead:{a:b}"), ("{t}:s", "dead:{t}:s"), ("s:{t}", "dead:s:{t}")):
        assert DLQConfig(dlq_prefix="dead").stream_of(stream, slot) == dead
        assert slot(dead) == slot(stream)
    with pytest.raises(ConfigurationError, match="braces"):
        DLQConfig(dlq_prefix="{dead}").stream_of("s", slot)


def test_members_of_enumerations_are_plain_names() -> None:
    assert type(stream_name(StreamType.ALERTS)) is str
    assert [group.streams for group in default_groups()] == [
        ["xnai:agent_bus", "xnai:task_updates"],
        ["xnai:memory_updates"],
        ["xnai:alerts"],
    ]
    assert StreamMessage("1-1", StreamType.ALERTS, {}).to_dict()["stream"] == "xnai:alerts"


def test_a_message_takes_its_time_from_its_id() -> None:
    assert StreamMessage("1700000000123-5", "s", {}).timestamp == "2023-11-14T22:13:20.123000+00:00"
    assert StreamMessage(f"{2**64 - 1}-0", "s", {}).timestamp.startswith("9999-12-31")
    with pytest.raises(ConfigurationError, match="entry id"):
        StreamMessage("first", "s", {})


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({}, "redis://localhost:6379"),
        ({"REDIS_HOST": "db", "REDIS_PORT": "7000"}, "redis://db:7000"),
        ({"REDIS_HOST": "::1"}, "redis://[::1]:6379"),
        ({"REDIS_PASSWORD": "p@ss/word"}, "redis://:p%40ss%2Fword@localhost:6379"),
        ({"REDIS_URL": "redis://a/1", "REDIS_HOST": "db"}, "redis://a/1"),
        ({"PENSTOCK_URL": "redis://b", "REDIS_URL": "redis://a"}, "redis://b"),
        ({"PENSTOCK_URL": "", "REDIS_URL": ""}, "redis://localhost:6379"),
    ],
)
def test_the_server_is_where_the_environment_says_and_never_an_embedded_one(environ: dict[str, str], url: str) -> None:
    assert server_url(environ) == url


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({"REDIS_URL": "http://canary@x"}, r"\$REDIS_URL"),
        ({"PENSTOCK_URL": "canary"}, r"\$PENSTOCK_URL"),
        ({"REDIS_PORT": "canary"}, r"\$REDIS_PORT"),
    ],
)
def test_a_bad_address_names_the_variable_and_not_its_value(environ: dict[str, str], names: str) -> None:
    with pytest.raises(ConfigurationError, match=names) as caught:
        server_url(environ)
    assert "canary" not in str(caught.value)
