"""Dead letters in the lake: each once, with every byte it had, whoever copies them and whatever is killed when."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock.backend import keys
from penstock.backend.address import parse
from penstock.backend.embedded import EmbeddedServer
from penstock.backend.redis.blocking import BlockingLink
from penstock.errors import LakeError
from penstock.lake import Lake, dead_letters, tables
from penstock.lake.dead_letters import copy_dead_letters
from penstock.message.ids import new_id
from tests.lake.dying import give_up


class DiedError(BaseException):
    """Nothing catches it, like a kill."""


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer.start(ephemeral=True) as running:
        yield running


@pytest.fixture
def admin(server: EmbeddedServer) -> "Iterator[redis.Redis]":
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
def link(server: EmbeddedServer) -> Iterator[BlockingLink]:
    with BlockingLink.open(parse(server.url)) as opened:
        yield opened


@pytest.fixture
def topic() -> str:
    return f"t:{new_id()}"


def ids(lake: Lake) -> Counter[str]:
    return Counter(tables.query(lake, "SELECT id FROM dead")["id"].to_pylist())


async def test_each_letter_is_there_once_with_all_that_is_known_of_it(
    server: EmbeddedServer, admin: "redis.Redis", link: BlockingLink, topic: str, tmp_path: Path
) -> None:
    lake = Lake.create(tmp_path)
    before = datetime.now(UTC) - timedelta(seconds=5)
    first = await give_up(server.url, topic, [{"n": 1}])
    assert copy_dead_letters(lake, link, [topic, f"{topic}:none"]) == 1
    assert copy_dead_letters(lake, link, [topic]) == 0
    later = await give_up(server.url, topic, [{"n": 2}, {"n": 3}], group="others")
    assert copy_dead_letters(lake, link, [topic]) == 2

    assert later[0] == first[0]  # which every group is given
    assert ids(lake) == {first[0]: 2, later[1]: 1}
    row, *_ = tables.query(lake, "SELECT * FROM dead ORDER BY died, letter_id").to_pylist()
    ((letter_id, _),) = admin.xrange(keys.dead(topic), count=1)
    ((entry_id, stored),) = admin.xrange(topic, count=1)
    assert (row["letter_id"], row["entry_id"], row["id"]) == (letter_id.decode(), entry_id.decode(), first[0])
    assert (row["topic"], row["group"], row["type"], row["payload"]) == (topic, "g", "order", '{"n":1}')
    assert (row["reason"], row["error"], row["traceback"]) == (f"no use {entry_id.decode()}", "ValueError", "here")
    assert (row["attempts"], row["replay"], row["replays"], row["lost"], row["broken"]) == (1, "", 0, False, None)
    assert dict(row["details"]) == {"try": "1"}
    assert dict(zip(row["fields"][::2], row["fields"][1::2], strict=True)) == stored
    assert before < row["first"] <= row["last"] <= row["died"] + timedelta(seconds=1)
    assert row["date"] == row["died"].astimezone(UTC).date().isoformat()


async def test_what_is_no_json_or_no_letter_at_all_keeps_its_bytes(
    server: EmbeddedServer, admin: "redis.Redis", link: BlockingLink, topic: str, tmp_path: Path
) -> None:
    await give_up(server.url, topic, [{"n": 1}])
    ((_, stored),) = admin.xrange(keys.dead(topic))
    record = stored[b"penstock-dead"]
    admin.delete(keys.dead(topic))
    bad = [
        {b"penstock-dead": record, b"payload": b"\xff\x00", b"type": b"\xfe"},
        {b"penstock-dead": record, b"payload": b'{"a":1,"a":2}'},
        {b"penstock-dead": b"{", b"payload": b"{}"},
        {b"other": b"\x00"},
    ]
    for one in bad:
        admin.xadd(keys.dead(topic), one)  # type: ignore[arg-type]
    beyond = admin.xadd(keys.dead(topic), {b"penstock-dead": record}, "9999999999999999-0").decode()
    lake = Lake.create(tmp_path)

    assert copy_dead_letters(lake, link, [topic]) == 5

    rows = tables.query(lake, "SELECT * FROM dead ORDER BY length(letter_id), letter_id").to_pylist()
    assert [row["payload"] for row in rows] == [None, None, "{}", None, None]
    assert [row["type"] for row in rows] == ["\\xfe", None, None, None, None]
    assert [row["broken"] is None for row in rows] == [True, True, False, False, True]
    assert rows[0]["fields"] == [b"payload", b"\xff\x00", b"type", b"\xfe"]
    assert rows[2]["fields"] == [b"penstock-dead", b"{", b"payload", b"{}"]
    assert rows[3]["fields"] == [b"other", b"\x00"]
    assert (rows[4]["letter_id"], rows[4]["died"], rows[4]["date"]) == (beyond, None, "none")


async def test_two_runs_at_a_time_bring_each_letter_once(
    server: EmbeddedServer, link: BlockingLink, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, other = Lake.create(tmp_path), Lake.create(tmp_path)
    died = await give_up(server.url, topic, [{"n": n} for n in range(40)])
    real, raced = dead_letters._written, []

    def race(*args: Any) -> Any:
        monkeypatch.setattr(dead_letters, "_written", real)
        raced.append(copy_dead_letters(other, link, [topic]))
        return real(*args)

    monkeypatch.setattr(dead_letters, "_written", race)
    assert copy_dead_letters(lake, link, [topic]) == 0
    assert raced == [40]
    assert ids(lake) == dict.fromkeys(died, 1)
    assert lake.staged() == []


async def test_many_letters_come_in_portions_and_a_run_that_died_is_gone_on_with(
    server: EmbeddedServer, link: BlockingLink, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_MOST_LETTERS", 150)
    lake = Lake.create(tmp_path)
    died = await give_up(server.url, topic, [{"n": n} for n in range(730)])
    real, commits = Lake.commit, []

    def dying(self: Lake, *args: Any) -> Any:
        commits.append(1)
        done = real(self, *args) if len(commits) != 2 else None
        if len(commits) in (2, 4):
            raise DiedError  # once before it is made, once after
        return done

    monkeypatch.setattr(Lake, "commit", dying)
    for _ in range(2):
        with pytest.raises(DiedError):
            copy_dead_letters(lake, link, [topic])
    assert copy_dead_letters(Lake.open(tmp_path), link, [topic]) == 730 - 3 * 200
    assert ids(lake) == dict.fromkeys(died, 1)
    assert max(file.rows for file in lake.snapshot().of("dead")) == 200


async def test_letters_of_a_stream_made_anew_are_found_though_their_ids_are_lower(
    server: EmbeddedServer, admin: "redis.Redis", link: BlockingLink, topic: str, tmp_path: Path
) -> None:
    lake = Lake.create(tmp_path)
    await give_up(server.url, topic, [{"n": n} for n in range(3)])
    assert copy_dead_letters(lake, link, [topic]) == 3
    letters = admin.xrange(keys.dead(topic))
    admin.delete(keys.dead(topic))
    admin.xadd(keys.dead(topic), letters[0][1], "5-1")  # an older clock
    admin.xadd(keys.dead(topic), letters[0][1], letters[0][0])  # which the lake has

    assert copy_dead_letters(lake, link, [topic]) == 1
    admin.xadd(keys.dead(topic), letters[1][1])
    assert copy_dead_letters(lake, link, [topic]) == 1

    found = Counter(tables.query(lake, "SELECT letter_id FROM dead")["letter_id"].to_pylist())
    assert found.keys() > {"5-1", *(id.decode() for id, _ in letters)}
    assert set(found.values()) == {1}
    assert found.total() == 5


@pytest.mark.parametrize("dies", [False, True], ids=["in one run", "in two runs"])
async def test_after_the_server_fell_back_no_portion_brings_what_the_lake_has(
    server: EmbeddedServer, admin: "redis.Redis", link: BlockingLink, topic: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, dies: bool,
) -> None:  # fmt: skip
    lake = Lake.create(tmp_path)
    await give_up(server.url, topic, [{"n": n} for n in range(450)])
    assert copy_dead_letters(lake, link, [topic]) == 450
    letters = admin.xrange(keys.dead(topic))
    admin.delete(keys.dead(topic))
    older = [(f"{n}-1", raw) for n, (_, raw) in enumerate(letters[:150], 1)]  # of which the lake has none
    for id, raw in [*older, *letters[:430]]:  # of which it has all, and twenty more
        admin.xadd(keys.dead(topic), raw, id)
    monkeypatch.setattr(dead_letters, "_MOST_LETTERS", 100)
    monkeypatch.setattr(dead_letters, "_MOST_BYTES", 1)

    if dies:
        with monkeypatch.context() as patched:
            real = Lake.commit
            patched.setattr(Lake, "commit", lambda *args: _die_after(real(*args)))
            with pytest.raises(DiedError):
                copy_dead_letters(lake, link, [topic])
    assert copy_dead_letters(Lake.open(tmp_path), link, [topic]) == (50 if dies else 150)
    admin.xadd(keys.dead(topic), letters[0][1])
    assert copy_dead_letters(lake, link, [topic]) == 1

    found = Counter(tables.query(lake, "SELECT letter_id FROM dead")["letter_id"].to_pylist())
    assert found.total() == len(found) == 450 + 150 + 1


def _die_after(_: object) -> None:
    raise DiedError


async def test_a_lake_that_cannot_be_written_is_told_and_nothing_is_lost(
    server: EmbeddedServer, link: BlockingLink, topic: str, tmp_path: Path
) -> None:
    lake = Lake.create(tmp_path)
    died = await give_up(server.url, topic, [{"n": 1}])
    (tmp_path / "_penstock/commits/00000000000000000001.json").write_text("{")
    with pytest.raises(LakeError, match=r"0001\.json cannot be read"):
        copy_dead_letters(lake, link, [topic])
    (tmp_path / "_penstock/commits/00000000000000000001.json").unlink()
    copy_dead_letters(lake, link, [topic])
    assert ids(lake) == dict.fromkeys(died, 1)


async def test_letters_that_could_not_be_written_leave_nothing_staged(
    server: EmbeddedServer, link: BlockingLink, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.create(tmp_path)
    died = await give_up(server.url, topic, [{"n": 1}])

    def full(_lake: Lake, staging: Path, *_: Any) -> Iterator[Any]:
        (staging / "0000.parquet").write_bytes(b"PAR1")
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(dead_letters, "_written", full)
        with pytest.raises(OSError, match="no space left"):
            copy_dead_letters(lake, link, [topic])
    assert lake.staged() == []
    copy_dead_letters(lake, link, [topic])
    assert ids(lake) == dict.fromkeys(died, 1)
