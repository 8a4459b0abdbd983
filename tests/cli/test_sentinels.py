"""Commands find their server by its sentinels, whoever names them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.commands import leaves
from tests.support.sentinels import SERVICE, Sentinel, sentinel, tcp_server
from tests.support.servers import free_port, valkey_binary


@pytest.fixture(scope="module")
def guard() -> Iterator[Sentinel]:
    """The sentinel of a server that has one topic, orders."""
    binary = valkey_binary()
    assert binary is not None
    with tcp_server(binary) as server, sentinel(binary, server) as started:
        CommandLine(started.url, server.directory)("publish", "orders", "{}")
        yield started


def test_a_url_of_sentinels_is_good_wherever_a_server_is_named(
    guard: Sentinel, nowhere: CommandLine, tmp_path: Path
) -> None:
    url = f"redis+sentinel://127.0.0.1:{free_port()},{guard.place}/{SERVICE}"
    nowhere("context", "add", "shop", url)
    for ls in (
        nowhere("ls", "-o", "ndjson", "--url", url),
        nowhere("ls", "-o", "ndjson", "--context", "shop"),
        CommandLine(url, tmp_path)("ls", "-o", "ndjson"),
    ):
        assert [row["topic"] for row in ls.rows] == ["orders"]
    assert guard.place in nowhere("context", "ls", "-o", "ndjson").rows[0]["url"]


def test_doctor_looks_at_the_server_and_not_at_its_sentinel(guard: Sentinel, nowhere: CommandLine) -> None:
    done = nowhere("doctor", "--url", guard.url, "-o", "ndjson", code=1)
    assert [row["rule"] for row in done.rows if row["subject"] == "server"] == ["persistence"]


# Each opens its connections in another way: an app, one that watches, blocking ones.
@pytest.mark.parametrize("name", ["ls", "top", "bench", "lake replay"])
def test_no_sentinel_that_can_be_reached_is_exit_code_4(name: str, nowhere: CommandLine, tmp_path: Path) -> None:
    places = [f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"]
    command = leaves()[name].command(lake=tmp_path / "lake")
    url = f"redis+sentinel://:canary@{','.join(places)}/{SERVICE}?sentinel_password=canary"
    line = nowhere.refused(*command, "--url", url, code=4)
    assert all(place in line for place in places)
    assert "canary" not in line


@pytest.mark.parametrize("name", ["ls", "bench"])
def test_a_service_that_they_do_not_know_is_exit_code_1_and_they_say_which_they_know(
    name: str, guard: Sentinel, nowhere: CommandLine, tmp_path: Path
) -> None:
    command = leaves()[name].command(lake=tmp_path / "lake")
    line = nowhere.refused(*command, "--url", f"redis+sentinel://{guard.place}/mian", code=1)
    assert f"'{SERVICE}'" in line


def test_a_url_without_a_service_is_exit_code_2_and_shows_the_form(guard: Sentinel, nowhere: CommandLine) -> None:
    line = nowhere.refused("ls", "--url", f"redis+sentinel://:canary@{guard.place}", code=2)
    assert "redis+sentinel://user:password@host:26379,other:26379/service/0" in line
    assert "canary" not in line
