"""Every option is understood or refused, at once, by its name."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.errors import ConfigurationError
from penstock.spark.connection.server import Server
from penstock.spark.options import either
from penstock.spark.options.boundaries import EARLIEST, GROUP, LATEST, Place
from penstock.spark.options.server import ServerOptions
from penstock.spark.options.sink import SinkOptions
from penstock.spark.options.source import SourceOptions
from penstock.spark.start.session import MASTER_VARIABLE

HIGHEST = 2**64 - 1
T = {"topic": "orders"}


def refused(**options: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        SourceOptions.parse({**T, **options})
    return str(caught.value)


def test_what_is_not_said_has_its_default() -> None:
    found = SourceOptions.parse(T)
    assert (found.topic, found.start, found.ending_position, found.fail_on_data_loss) == (
        "orders", EARLIEST, LATEST, True,
    )  # fmt: skip
    assert (found.layout, found.dialect, found.mode, found.view, found.group) == (
        "envelope", None, "permissive", None, None,
    )  # fmt: skip
    sink = SinkOptions.parse(T)
    assert (sink.delivery, sink.layout, sink.dialect, sink.window) == ("batch", "envelope", "native", 1000)


def test_every_option_of_the_source_is_read_whatever_its_case() -> None:
    given = {
        "TOPICS": "a, b", "GROUP": "g", "startingposition": "5-1", "MaxEntriesPerTrigger": "10",
        "maxBytesPerTrigger": "2k", "minEntriesPerTrigger": "3", "maxTriggerDelay": "90s", "minPartitions": "4",
        "entriesPerPartition": "7", "failOnDataLoss": "FALSE", "layout": "RAW", "mode": "FailFast", "url": "redis://h",
    }  # fmt: skip
    found = SourceOptions.parse(given)
    assert found == SourceOptions(
        server=ServerOptions(url="redis://h"), topics=("a", "b"), group="g", starting_position=Place("at", "5-1"),
        max_entries_per_trigger=10, max_bytes_per_trigger=2048, min_entries_per_trigger=3,
        max_trigger_delay=timedelta(seconds=90), min_partitions=4, entries_per_partition=7, fail_on_data_loss=False,
        layout="raw", mode="failfast",
    )  # fmt: skip
    assert SourceOptions.parse({"topicsPattern": "a.*"}).topics_pattern == re.compile("a.*")


def test_every_option_of_the_sink_is_read() -> None:
    given = {"topic": "a", "layout": "flat", "delivery": "fence", "window": "10", "name": "n", "orderedBy": "k"}
    found = SinkOptions.parse({**given, "remember": "2d", "checkpointLocation": "/x", "__internal": "1"})
    assert found == SinkOptions(
        server=ServerOptions(), topic="a", layout="flat", delivery="fence", window=10, name="n", ordered_by="k",
        remember=timedelta(days=2),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("earliest", "0-0"),
        ("5-18446744073709551615", f"5-{HIGHEST}"),
        ("05-01", "5-1"),
        ("1970-01-01T00:00:00Z", "0-0"),
        ("1970-01-01T00:00:01Z", f"999-{HIGHEST}"),
        ("1970-01-01T01:00:01.0005+01:00", f"1000-{HIGHEST}"),
    ],
)
def test_a_position_is_a_boundary_between_entries(text: str, id: str) -> None:
    assert SourceOptions.parse({**T, "startingPosition": text}).start == Place("at", id)


def test_with_a_group_reading_starts_at_its_cursor() -> None:
    assert SourceOptions.parse({**T, "group": "g"}).start == GROUP
    assert SourceOptions.parse({**T, "group": "g", "startingPosition": "latest"}).start == LATEST


@pytest.mark.parametrize(
    ("name", "text", "accepted"),
    [
        ("startingPosition", "yesterday", "an entry id like 1700000000000-0"),
        ("startingPosition", "2026-01-31T12:00:00", "a time with offset"),
        ("startingPosition", "18446744073709551616-0", "an entry id"),
        ("startingPosition", "1700000000000", "an entry id"),
        ("maxEntriesPerTrigger", "0", "a whole number from 1"),
        ("maxEntriesPerTrigger", "1e6", "a whole number from 1"),
        ("maxBytesPerTrigger", "10 MB", "64m"),
        ("maxTriggerDelay", "15", "15m"),
        ("minPartitions", "100001", "from 1 to 100000"),
        ("failOnDataLoss", "yes", "true or false"),
        ("layout", "wide", "envelope, raw, flat"),
        ("dialect", "avro", "native, cloudevents, job, enveloped, flat"),
        ("mode", "strict", "permissive, dropmalformed, failfast"),
        ("view", "all", "pending, groups, consumers, info, dead, parked"),
        ("group", "", "group"),
        ("group", "penstock", "choose another"),
        ("url", "", "some text"),
    ],
)
def test_a_wrong_value_names_the_option_and_what_it_accepts(name: str, text: str, accepted: str) -> None:
    error = refused(**{name: text})
    assert f"option {name}" in error
    assert accepted in error


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxEntriesPerTriger": "1"}, "did you mean maxEntriesPerTrigger?"),
        ({"delivery": "fence"}, "no option 'delivery'"),
        ({"path": "orders"}, "option topic"),
        ({"topics": "a,b"}, "topic and topics exclude each other"),
        ({"startingPosition": "group"}, "needs the option group"),
        ({"endingPosition": "group"}, "endingPosition=group"),
        ({"startingPosition": "5-0", "endingPosition": "5-0"}, "not before endingPosition"),
        ({"maxTriggerDelay": "5s"}, "needs minEntriesPerTrigger"),
        ({"minEntriesPerTrigger": "5", "maxEntriesPerTrigger": "4"}, "minEntriesPerTrigger=5"),
        ({"layout": "raw", "dialect": "job"}, "option dialect"),
        ({"view": "dead", "mode": "failfast"}, "option mode does not apply to view=dead"),
        ({"view": "info", "startingPosition": "5-0"}, "startingPosition does not apply"),
        ({"url": "redis://h", "urlEnv": "X"}, "url and urlEnv exclude"),
        ({"username": "u"}, "username needs a password"),
        ({"passwordEnv": "A", "passwordFile": "b"}, "passwordEnv and passwordFile exclude"),
    ],
)
def test_what_cannot_go_together_is_refused(options: dict[str, str], said: str) -> None:
    assert said in refused(**options)


def test_a_source_needs_a_topic() -> None:
    for options in ({}, {"topics": "a,a"}, {"topics": "a,,b"}, {"topicsPattern": "("}, {"topic": "penstock:topics"}):
        with pytest.raises(ConfigurationError, match="topic"):
            SourceOptions.parse(options)


@pytest.mark.parametrize(
    "options",
    [
        {"maxEntriesPerTrigger": "1"},
        {"maxBytesPerTrigger": "1"},
        {"minEntriesPerTrigger": "1"},
        {"startingPosition": "latest"},
    ],
)
def test_what_only_a_stream_can_do_is_refused_in_a_batch(options: dict[str, str]) -> None:
    parsed = SourceOptions.parse({**T, **options})
    assert parsed.for_stream() is parsed
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        parsed.for_batch()


@pytest.mark.parametrize("options", [{"endingPosition": "5-0"}, {"view": "info"}])
def test_what_only_a_batch_can_do_is_refused_in_a_stream(options: dict[str, str]) -> None:
    parsed = SourceOptions.parse({**T, **options})
    assert parsed.for_batch() is parsed
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        parsed.for_stream()


def test_options_of_either_side_pass_the_first_check_and_others_do_not() -> None:
    either.check(T)
    either.check({**T, "group": "g"})
    either.check({"delivery": "uuid"})
    cases = [
        ({**T, "modee": "x"}, "format has no option 'modee': did you mean mode?"),
        ({**T, "windows": "5"}, "format has no option 'windows': did you mean window?"),
        ({"delivery": "x"}, "option delivery"),
        ({**T, "layout": "x"}, "option layout"),
        ({**T, "group": "g", "window": "5"}, "sink has no option 'group'"),
    ]
    for options, said in cases:
        with pytest.raises(ConfigurationError, match=said):
            either.check(options)


def test_a_password_in_a_url_option_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigurationError, match="urlEnv") as caught:
        Server.resolve(ServerOptions(url="redis://:hunter2@h"))
    assert "hunter2" not in str(caught.value)


def test_the_server_is_found_by_environment_or_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    url = tmp_path / "url"
    url.write_text("redis://u:hunter2@h:1/3\n")
    environ = {"PENSTOCK_URL": "redis://d", "MY_URL": "redis://u:hunter2@h:1/3", "MY_PASSWORD": "hunter2"}
    cases = [
        (ServerOptions(), "redis://d:6379/0", None),
        (ServerOptions(url_env="MY_URL"), "redis://u:***@h:1/3", "hunter2"),
        (ServerOptions(url_file=str(url)), "redis://u:***@h:1/3", "hunter2"),
        (ServerOptions(url="redis://h", username="u", password_env="MY_PASSWORD"), "redis://u:***@h:6379/0", "hunter2"),
        (ServerOptions(url="redis://h", password_file=str(secret)), "redis://:***@h:6379/0", "hunter2"),
    ]
    for options, shown, password in cases:
        server = Server.resolve(options, environ)
        assert (str(server.address), server.address.password) == (shown, password)
        assert "hunter2" not in repr(server)
        assert server.for_executor() == server.address


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (ServerOptions(), "url, urlEnv and urlFile, or \\$PENSTOCK_URL"),
        (ServerOptions(url_env="NO"), "urlEnv: \\$NO is not set"),
        (ServerOptions(url_file="/no/such"), "urlFile: /no/such"),
        (ServerOptions(url="redis://h", password_env="NO"), "passwordEnv: \\$NO"),
        (ServerOptions(url_env="WITH", password_env="P"), "holds a password already"),
        (ServerOptions(url="embedded://?ephemeral=true"), "name a directory"),
    ],
)
def test_a_server_that_cannot_be_found_is_said_by_option(options: ServerOptions, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Server.resolve(options, {"WITH": "redis://:x@h", "P": "p"})


def test_an_embedded_server_is_for_one_machine(tmp_path: Path) -> None:
    options = ServerOptions(url=f"embedded://{tmp_path}")
    with pytest.raises(ConfigurationError, match="master is spark://h:7077"):
        Server.resolve(options, {MASTER_VARIABLE: "spark://h:7077"})
    elsewhere = Server(Server.resolve(ServerOptions(url="redis://h"), {}).address, str(tmp_path), "another machine")
    with pytest.raises(ConfigurationError, match="this executor runs on another"):
        elsewhere.for_executor()
