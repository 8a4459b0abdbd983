"""Which server is meant: found by URL, environment or file, and no secret is ever repeated."""

import dataclasses
from pathlib import Path

import pytest

from penstock.errors import ConfigurationError
from penstock.spark.connection.server import Server
from penstock.spark.options.server import ServerOptions, camel
from penstock.spark.start.session import MASTER_VARIABLE


@pytest.mark.parametrize("url", ["redis://:hunter2@h", "redis+sentinel://h/main?sentinel_password=hunter2"])
def test_a_password_in_a_url_option_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match="urlEnv") as caught:
        Server.resolve(ServerOptions(url=url))
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
        (
            ServerOptions(url="redis+sentinel://h/main", password_file=str(secret)),
            "redis+sentinel://:***@h:26379/main/0",
            "hunter2",
        ),
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
        (ServerOptions(url_env="NO"), "urlEnv names a variable that is not set"),
        (ServerOptions(url_file="/no/such"), "urlFile names a file that cannot be read .*FileNotFoundError"),
        (ServerOptions(url="redis://h", password_env="NO"), "passwordEnv names a variable"),
        (ServerOptions(url_env="WITH", password_env="P"), "holds a password already"),
        (ServerOptions(url="embedded://?ephemeral=true"), "name a directory"),
    ],
)
def test_a_server_that_cannot_be_found_is_said_by_option(options: ServerOptions, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Server.resolve(options, {"WITH": "redis://:x@h", "P": "p"})


@pytest.mark.parametrize("name", ["url_env", "url_file", "password_env", "password_file"])
@pytest.mark.parametrize("secret", ["hunter2", "redis://u:hunter2@h", "hunter2" * 99, "hunter2\0"])
def test_a_secret_given_instead_of_its_name_is_not_repeated(name: str, secret: str, tmp_path: Path) -> None:
    options = ServerOptions(**{"url": "redis://h" if "password" in name else None, name: secret})
    with pytest.raises(ConfigurationError, match=f"option {camel(name)} names") as caught:
        Server.resolve(options, {})
    assert "hunter2" not in f"{caught.value!r} {options!r}"
    empty = tmp_path / "hunter2"
    empty.touch()
    with pytest.raises(ConfigurationError, match=f"option {camel(name)} names") as caught:
        Server.resolve(dataclasses.replace(options, **{name: str(empty)}), {})
    assert "hunter2" not in str(caught.value)


def test_an_embedded_server_is_for_one_machine(tmp_path: Path) -> None:
    options = ServerOptions(url=f"embedded://{tmp_path}")
    with pytest.raises(ConfigurationError, match="master is spark://h:7077"):
        Server.resolve(options, {MASTER_VARIABLE: "spark://h:7077"})
    elsewhere = Server(Server.resolve(ServerOptions(url="redis://h"), {}).address, str(tmp_path), "another machine")
    with pytest.raises(ConfigurationError, match="this executor runs on another"):
        elsewhere.for_executor()
