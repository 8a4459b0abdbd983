"""Every option is understood or refused, at once, by its name."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.errors import ConfigurationError
from penstock.message.dialects import DIALECTS
from penstock.spark.entries import columns
from penstock.spark.options import either
from penstock.spark.options.boundaries import EARLIEST, GROUP, LATEST, Boundary
from penstock.spark.options.schemas import LAYOUTS
from penstock.spark.options.server import ServerOptions
from penstock.spark.options.sink import DELIVERIES, SINK, SinkOptions
from penstock.spark.options.source import MODES, SOURCE, VIEWS, SourceOptions
from penstock.spark.sink import deliveries
from penstock.spark.views.rows import ROWS

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
    assert (sink.delivery, sink.layout, sink.dialect, sink.window) == ("batch", "envelope", "native", None)


def test_every_option_of_the_source_is_read_whatever_its_case() -> None:
    given = {
        "TOPICS": "a, b", "GROUP": "g", "startingposition": "5-1", "MaxEntriesPerTrigger": "10",
        "maxBytesPerTrigger": "2k", "minEntriesPerTrigger": "3", "maxTriggerDelay": "90s", "minPartitions": "4",
        "entriesPerPartition": "7", "failOnDataLoss": "FALSE", "layout": "RAW", "mode": "FailFast", "url": "redis://h",
    }  # fmt: skip
    found = SourceOptions.parse(given)
    assert found == SourceOptions(
        server=ServerOptions(url="redis://h"), topics=("a", "b"), group="g", starting_position=Boundary("at", "5-1"),
        max_entries_per_trigger=10, max_bytes_per_trigger=2048, min_entries_per_trigger=3,
        max_trigger_delay=timedelta(seconds=90), min_partitions=4, entries_per_partition=7, fail_on_data_loss=False,
        layout="raw", mode="failfast",
    )  # fmt: skip
    assert SourceOptions.parse({"topicsPattern": "a.*"}).topics_pattern == re.compile("a.*")


def test_every_option_of_the_sink_is_read() -> None:
    given = {"topic": "a", "layout": "flat", "delivery": "fence", "window": "10", "orderedBy": "k", "remember": "2d"}
    found = SinkOptions.parse({**given, "checkpointLocation": "/x", "__internal": "1"})
    assert found == SinkOptions(
        server=ServerOptions(), topic="a", layout="flat", delivery="fence", window=10, ordered_by="k",
        remember=timedelta(days=2),
    )  # fmt: skip
    assert SinkOptions.parse({"name": "n", "dialect": "job"}) == SinkOptions(
        server=ServerOptions(), name="n", dialect="job"
    )


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
    assert SourceOptions.parse({**T, "startingPosition": text}).start == Boundary("at", id)


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
        ({"view": "dead", "mode": "permissive"}, "option mode does not apply to view=dead"),
        ({"view": "info", "startingPosition": "5-0"}, "startingPosition does not apply"),
        ({"view": "info", "group": "g"}, "option group does not apply to view=info"),
        ({"endingPosition": "earliest"}, "not before endingPosition"),
        ({"endingPosition": "0-0", "group": "g"}, "not before endingPosition"),
        ({"endingPosition": "5-0", "maxEntriesPerTrigger": "5"}, "endingPosition is for batch reads"),
        ({"endingPosition": "5-0", "startingPosition": "latest"}, "endingPosition is for batch reads"),
        ({"endingPosition": "5-0", "startingPosition": "2-0", "group": "g"}, "option group does nothing"),
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
        {"group": "g", "startingPosition": "5-0"},
        {"group": "g", "startingPosition": "earliest"},
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


@pytest.mark.parametrize(
    "options",
    [
        {**T},
        {**T, "group": "g"},
        {**T, "GROUP": "g", "startingPosition": "5-0"},
        {"delivery": "uuid"},
        {"url": "redis://h", "checkpointLocation": "/x", "queryName": "q", "__internal": "1"},
    ],
)
def test_what_one_side_takes_passes_the_first_check(options: dict[str, str]) -> None:
    assert either.check(options) == ServerOptions(url=options.get("url"))


def test_the_first_check_tells_an_unknown_option_in_the_same_words_for_either_side() -> None:
    told = set()
    for known in ({}, T, {**T, "group": "g"}, {"delivery": "uuid"}, {"checkpointLocation": "/x"}):
        with pytest.raises(
            ConfigurationError, match="the penstock format has no option 'windows': did you mean window"
        ) as e:
            either.check({**known, "windows": "5"})
        told.add(str(e.value))
    assert len(told) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({**T, "modee": "x"}, "format has no option 'modee': did you mean mode?"),
        ({"path": "orders"}, "format takes no path"),
        ({"delivery": "x"}, "option delivery"),
        ({**T, "layout": "x"}, "option layout"),
        ({**T, "layout": "raw", "dialect": "job"}, "option dialect"),
        ({**T, "username": "u"}, "username needs a password"),
        ({**T, "group": "g", "window": "5"}, "option group is for reading, and option window for writing"),
        ({**T, "group": "g", "checkpointLocation": "/x"}, "group is for reading, and option checkpointlocation for"),
        ({"mode": "failfast"}, "option mode is for reading, which needs one of the options topic,"),
        ({"mintriggerdelay": "5s", "minpartitions": "5"}, "did you mean maxTriggerDelay?"),
        ({"minpartitions": "5"}, "option minPartitions is for reading, which needs"),
        ({**T, "endingPosition": "5-0", "maxEntriesPerTrigger": "5"}, "a stream has no end"),
        ({**T, "orderedBy": "n"}, "orderedBy is for delivery=fence"),
    ],
)
def test_the_first_check_refuses_what_fits_no_side(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        either.check(options)


def test_the_page_about_spark_names_every_option_and_what_can_be_chosen() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    names = [*SOURCE, *SINK, *VIEWS, *MODES, *DELIVERIES, *LAYOUTS, *DIALECTS]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_what_options_accept_is_what_there_is() -> None:
    assert set(VIEWS) == ROWS.keys()
    assert MODES == columns.MODES
    assert set(DELIVERIES) == deliveries.MODES.keys()
