"""Every command on a server with something of everything on it: its answers, and what it leaves as it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from penstock.lake import Lake
from tests.lake.pouring import Row as LakeRow
from tests.lake.pouring import pour
from tests.support.answers import FORMS, read
from tests.support.command_line import CommandLine, Done
from tests.support.commands import Leaf, leaves
from tests.support.servers import Server
from tests.support.stock import NAMES, Keyspace, keyspace, put_back, stock


def those(*found: Leaf) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("leaf", found, ids=lambda leaf: leaf.name.replace(" ", "-"))


ASKING = [leaf for leaf in leaves().values() if leaf.row.asks == "a server" and leaf.row.needs == "nothing"]
LOOKING = [leaf for leaf in ASKING if not leaf.row.acts]


@pytest.fixture(scope="session")
def in_stock(kept_server: Server) -> Keyspace:
    with kept_server.client() as client:
        client.flushall()
        stock(kept_server.url, client)
        return keyspace(client)


@pytest.fixture
def before(in_stock: Keyspace, client: "redis.Redis") -> Iterator[Keyspace]:
    """What is on the server when the test begins."""
    put_back(client, in_stock)
    yield keyspace(client)
    client.flushall()


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """With a message in it."""
    made = Lake.create(tmp_path / "lake")
    pour(made, [LakeRow("orders", 1, NAMES["message"])])
    return made.path


@those(*(leaf for leaf in ASKING if leaf.has("--yes")))
def test_what_needs_a_yes_says_what_it_would_do_and_does_nothing(
    leaf: Leaf, penstock: CommandLine, client: "redis.Redis", before: Keyspace, lake: Path
) -> None:
    done = penstock(*leaf.command(lake=lake), code=5)
    assert done.out
    assert all(line.startswith("Would ") for line in done.out.splitlines())
    assert done.err == "penstock: nothing was changed: add --yes to do it\n"
    assert keyspace(client) == before
    penstock(*leaf.command(lake=lake), "--yes", code=leaf.row.stocked)
    assert keyspace(client) != before


@those(*(leaf for leaf in LOOKING if not leaf.has("--yes")))
def test_who_only_looks_changes_nothing_and_answers_in_every_form(
    leaf: Leaf, penstock: CommandLine, client: "redis.Redis", before: Keyspace
) -> None:
    for form in FORMS if leaf.has("--output") else (None,):
        told = () if form is None else ("-o", form)
        done = penstock(*leaf.command(), *told, code=leaf.row.stocked)
        assert form is None or read(form, done.out) > 0
        assert "Traceback" not in done.err
    assert keyspace(client) == before


@those(*ASKING, *(leaf for leaf in leaves().values() if leaf.row.asks == "nobody" and leaf.row.needs == "nothing"))
def test_a_reader_that_has_left_is_exit_code_141_and_not_a_word(
    leaf: Leaf, penstock: CommandLine, client: "redis.Redis", in_stock: Keyspace, lake: Path
) -> None:
    for form in ("table", "ndjson") if leaf.has("--output") else (None,):
        command = [*leaf.command(lake=lake), *(() if form is None else ("-o", form))]
        put_back(client, in_stock)
        done = penstock.unheard(*command)
        if (done.code, done.err) != (141, ""):  # then it had nothing to say
            put_back(client, in_stock)
            assert penstock(*command, code=done.code) == Done(done.code, "", done.err)
