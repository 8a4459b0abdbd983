"""The life of a message from a lake: all of it, in order, from as few files as can be."""

import uuid
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

from penstock.bus.journal import Attempt, Attempts, Gap
from penstock.errors import ConfigurationError
from penstock.lake import Lake, tables
from penstock.lake.compaction import compact
from penstock.lake.pruning import asked
from penstock.lake.trace import trace
from penstock.message.ids import new_id
from tests.lake.burying import Letter, after, bury
from tests.lake.pouring import START, Row, pour


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


def ids(count: int) -> list[str]:
    """As they would have been made a thousand a day; see `pouring`."""
    first = int(START.timestamp() * 1000)
    return [str(uuid.UUID(int=(first + number * 86_400) << 80 | 7 << 76 | 2 << 62 | number)) for number in range(count)]


def test_a_message_that_died_was_replayed_and_died_again(lake: Lake) -> None:
    rows = [Row("orders", number, id) for number, id in enumerate(ids(300))]
    pour(lake, rows)
    wanted = rows[100]
    pour(lake, [wanted._replace(number=250)])
    bury(lake, [
        Letter(id=wanted.id, died=after(3), entry_id=wanted.entry_id, reason="no such customer"),
        Letter(id=wanted.id, died=after(4), entry_id=wanted.entry_id, reason="no such order", replay="r1", replays=1),
        Letter(id=rows[7].id, died=after(3)),
    ])  # fmt: skip
    journal(lake, [
        attempt(wanted, 1, "failed", after(2.5), error="KeyError"), attempt(rows[7], 1, "failed", after(2.5)),
        attempt(wanted, 1, "handled", after(2.6), group="mail"), attempt(wanted, 2, "rejected", after(2.9)),
        attempt(wanted, 1, "failed", after(3.5)),
    ])  # fmt: skip

    found = trace(lake, wanted.id)

    assert [(event.what, event.group, event.attempt) for event in found.events] == [
        ("published", None, None), ("failed", "billing", 1), ("handled", "mail", 1), ("rejected", "billing", 2),
        ("dead", "billing", 5), ("replayed", "billing", None), ("failed", "billing", 1), ("dead", "billing", 5),
        ("published", None, None), ("now", "billing", None), ("now", "mail", None),
    ]  # fmt: skip
    moments = [event.at for event in found.events if event.at is not None and event.what != "now"]
    assert moments == sorted(moments)
    assert found.events[0].entry_id == wanted.entry_id
    assert "no such customer" in found.events[4].detail
    assert found.events[5].detail == "as r1"
    assert [event.detail.partition(",")[0] for event in found.events[-2:]] == ["a dead letter", "handled"]
    for event in found.events:
        assert (lake.path / event.source).is_file()


def test_a_replay_that_went_well_is_shown_however_late_it_was(lake: Lake) -> None:
    rows = [Row("orders", number, id) for number, id in enumerate(ids(300))]
    pour(lake, rows)
    wanted = rows[100]
    bury(lake, [Letter(id=wanted.id, died=after(4), entry_id=wanted.entry_id)])
    journal(lake, [attempt(wanted, 5, "failed", after(4)), attempt(wanted, 1, "handled", after(24 * 9), replay="r1")])
    found = trace(lake, wanted.id).events
    assert [event.what for event in found] == ["published", "failed", "dead", "handled", "now"]
    assert [event.detail for event in found[-2:]] == ["0.250 s, replayed as r1", "handled"]


def test_an_attempt_is_shown_once_though_the_journals_message_is_there_twice(lake: Lake) -> None:
    row = Row("orders", 1, ids(2)[1])
    pour(lake, [row])
    for _ in range(2):
        journal(lake, [attempt(row, 1, "handled", after(1))])
    assert [event.what for event in trace(lake, row.id).events] == ["published", "handled", "now"]


def attempt(row: Row, number: int, outcome: str, at: Any, group: str = "billing", **more: Any) -> Attempt:
    milliseconds = int(at.timestamp() * 1000)
    return Attempt(row.topic, group, row.id, row.entry_id, number, outcome, 0.25, milliseconds, **more)


def journal(lake: Lake, records: Sequence[Attempt]) -> None:
    """What a journal would have written, archived: two records a message, in the order of time, and a gap."""
    for start in range(0, len(records), 2):
        some = records[start : start + 2]
        at = max(record.at for record in some)
        number = int((at - START.timestamp() * 1000) / 86_400) + 1
        body = msgspec.json.encode(Attempts([*some, Gap(3, at)])).decode()
        pour(lake, [Row("journal", number, new_id())], payload=body, type=Attempts.message_type)


def test_only_files_that_may_hold_it_are_opened(lake: Lake) -> None:
    rows = [Row("orders", number, id) for number, id in enumerate(ids(3000))]
    for start in range(0, 3000, 50):
        pour(lake, rows[start : start + 50])
    found = trace(lake, rows[1234].id)
    assert [(event.what, event.entry_id) for event in found.events] == [
        ("published", rows[1234].entry_id), ("now", rows[1234].entry_id),
    ]  # fmt: skip
    assert (found.opened, found.files) == (1, 60)
    assert trace(lake, rows[1234].id[:-1] + "0").events == ()


def test_attempts_are_looked_for_where_they_can_be(lake: Lake) -> None:
    rows = [Row("orders", number, id) for number, id in enumerate(ids(5000))]
    pour(lake, rows)
    days = [attempt(rows[1000], 1, "failed", after(24 * day)) for day in (0.5, 1.2, 1.9, 4)]
    for one in days:
        journal(lake, [one])
    found = trace(lake, rows[1000].id)
    assert [event.at for event in found.events if event.what == "failed"] == [after(24 * 1.2), after(24 * 1.9)]
    assert found.opened == 3
    assert len(trace(lake, rows[1000].id, within=timedelta(days=5)).events) == 5
    assert trace(lake, rows[1000].id, journal="other").opened == 1


def test_what_is_not_there_has_no_events(lake: Lake) -> None:
    assert trace(lake, new_id()).events == ()
    with pytest.raises(ConfigurationError, match="no id of a message"):
        trace(lake, "o-17")
    with pytest.raises(ConfigurationError, match="must not be negative"):
        trace(lake, new_id(), within=timedelta(days=-1))


ID = "0196d3a0-0000-7000-8000-000000000000"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (f"SELECT * FROM raw WHERE id = '{ID}'", ID),
        (f"select count(*) from messages as m where topic = 'x' and (m.id = '{ID}' and seq > 3) limit 1", ID),
        (f"SELECT * FROM raw WHERE '{ID}' = raw.id", ID),
        (f"FROM raw WHERE id = '{ID}'", ID),
        (f"SELECT * FROM raw WHERE id = '{ID}' OR seq = 1", None),
        (f"SELECT * FROM raw WHERE NOT (id = '{ID}')", None),
        (f"SELECT * FROM raw WHERE id <> '{ID}'", None),
        (f"SELECT * FROM raw AS r(id) WHERE id = '{ID}'", None),
        (f"SELECT * FROM raw a JOIN raw b USING (topic) WHERE a.id = '{ID}'", None),
        (f"SELECT (SELECT count(*) FROM raw) FROM raw WHERE id = '{ID}'", None),
        (f"WITH raw AS (SELECT key AS id FROM raw) SELECT * FROM raw WHERE id = '{ID}'", None),
        (f"SELECT * FROM (SELECT key AS id FROM raw) WHERE id = '{ID}'", None),
        (f"SELECT * FROM raw WHERE id = '{ID}' UNION ALL SELECT * FROM raw", None),
        (f"SELECT * FROM raw WHERE payload.id = '{ID}'", None),
        (f"SELECT * FROM raw WHERE lower(id) = '{ID}'", None),
        ("SELECT * FROM raw WHERE id = key", None),
        ("SELECT 1", None),
        ("SELECT 1; SELECT 2", None),
        ("SELEC", None),
        ("CREATE TABLE x AS SELECT 1", None),
    ],
)
def test_a_query_by_id_is_known_as_such_only_if_it_is_one(sql: str, expected: str | None) -> None:
    ((tree,),) = duckdb.execute("SELECT json_serialize_sql($sql)", {"sql": sql}).fetchall()
    found = asked(tree)
    assert (found and found.id) == expected


def test_a_query_by_id_opens_only_files_that_may_hold_it(lake: Lake) -> None:
    rows = [Row("orders", number, id) for number, id in enumerate(ids(1000))]
    for start in range(0, 1000, 100):
        pour(lake, rows[start : start + 100])
    bury(lake, [Letter(id=rows[555].id, died=after(1))])
    state = lake.snapshot()
    sql = f"SELECT entry_id FROM raw WHERE id = '{rows[555].id}'"
    needed = tables.needed_by(sql, state)
    assert [file.table for file in needed.files.values()] == ["raw", "dead"]
    assert tables.query(lake, sql.replace("raw", "orders")).to_pylist() == [{"entry_id": rows[555].entry_id}]
    for table in ("raw", "messages", "dead", "failures", "orders"):
        assert tables.query(lake, f"SELECT id FROM {table} WHERE id = '{new_id()}'").to_pylist() == []
    # What is not needed may as well be gone.
    for path in state.files.keys() - needed.files.keys():
        (lake.path / path).unlink()
    assert tables.query(lake, sql).to_pylist() == [{"entry_id": rows[555].entry_id}]


def test_random_ids_are_found_without_reading_every_row(lake: Lake) -> None:
    """Bounds do not help where ids do not rise; filters inside the files do, once they were compacted."""
    rows = [Row("orders", number, str(uuid.uuid4())) for number in range(10_000)]
    for start in range(0, 10_000, 500):
        pour(lake, rows[start : start + 500])
    compact(lake)
    wanted, stranger = rows[7777], str(uuid.uuid4())
    assert {event.entry_id for event in trace(lake, wanted.id).events} == {wanted.entry_id}
    assert trace(lake, stranger).events == ()
    files = [str(lake.path / file.path) for file in lake.snapshot().of("raw")]
    probe = "SELECT bloom_filter_excludes FROM parquet_bloom_probe($files, 'id', $id)"
    passed_by = [excluded for (excluded,) in duckdb.execute(probe, {"files": files, "id": stranger}).fetchall()]
    assert len(passed_by) >= len(files) == 10
    assert passed_by.count(True) >= 7  # one in a hundred is read in vain
