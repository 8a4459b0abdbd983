"""Signs of life, without a process around them: what is listened on and answered, and which files are left alone."""

import http.client
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.cli.liveness import Endpoint, LivenessFile, LivenessPort, Pulse
from penstock.cli.usage import UsageError
from penstock.errors import ConfigurationError

DEADLINE = 30.0


@contextmanager
def answering(where: str, pulse: Pulse) -> Iterator[tuple[str, int]]:
    """A port that tells of `pulse`; yields the host and port in its URL."""
    port = LivenessPort(Endpoint.parse(where), pulse.is_alive)
    try:
        url = urlsplit(port.url)
        assert url.hostname is not None
        assert url.port is not None
        yield url.hostname, url.port
    finally:
        port.close()


def ask(method: str, host: str, port: int) -> tuple[int, str | None, bytes]:
    """The status of the answer, the length that it claims, and all that came after its headers."""
    connection = http.client.HTTPConnection(host, port, timeout=DEADLINE)
    connection.request(method, "/")
    answer = connection.getresponse()
    body = answer.fp.read()  # not answer.read(), which gives nothing for a HEAD whatever was sent
    connection.close()
    return answer.status, answer.getheader("Content-Length"), body


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("0", "127.0.0.1", 0),
        ("65535", "127.0.0.1", 65535),
        ("0.0.0.0:8080", "0.0.0.0", 8080),
        ("localhost:80", "localhost", 80),
        ("[::]:8080", "::", 8080),
    ],
)
def test_a_liveness_port_is_on_this_machine_unless_it_names_a_host(text: str, host: str, port: int) -> None:
    assert Endpoint.parse(text) == Endpoint(host, port)
    assert str(Endpoint(host, port)).endswith(text)


@pytest.mark.parametrize(
    "text", ["65536", "-1", "99999", "", "x", "8e3", "²", "host:", "host:x", "host:99999", ":8080", "::1", "[]:80"]
)
def test_what_is_no_port_is_refused_with_what_it_should_be(text: str) -> None:
    with pytest.raises(UsageError, match=r"--liveness-port is PORT or HOST:PORT .* 0 to 65535, .*, not "):
        Endpoint.parse(text)


@pytest.mark.parametrize("host", ["192.0.2.1", "a..b"])
def test_a_host_that_is_not_of_this_machine_is_one_clear_error(host: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"--liveness-port {host}:0 cannot be listened on: ['\w]"):
        LivenessPort(Endpoint(host, 0), Pulse().is_alive)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_answers_probes_on_the_host_that_was_asked_for(host: str) -> None:
    pulse = Pulse(DEADLINE)
    with answering(f"{host}:0", pulse) as place:
        assert ask("GET", *place) == (503, "6", b"stuck\n")
        pulse.beat()
        assert ask("GET", *place) == (200, "6", b"alive\n")


def test_head_is_answered_as_get_is_but_without_a_body() -> None:
    pulse = Pulse(DEADLINE)
    with answering("0", pulse) as place:
        assert ask("HEAD", *place) == (503, "6", b"")
        pulse.beat()
        assert ask("HEAD", *place) == (200, "6", b"")


def test_a_probe_that_hangs_up_is_no_news(capfd: pytest.CaptureFixture[str]) -> None:
    with answering("0", Pulse()) as place:
        before = set(threading.enumerate())
        with socket.create_connection(place, timeout=DEADLINE) as rude:
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() resets
            rude.sendall(b"GET")
        assert ask("GET", *place)[0] == 503
        for each in set(threading.enumerate()) - before:  # those who answer
            each.join(DEADLINE)
    assert capfd.readouterr().err == ""


def test_a_file_that_holds_something_is_not_taken_for_a_liveness_file(tmp_path: Path) -> None:
    precious = tmp_path / "shop.py"
    precious.write_text("app = ...")
    with pytest.raises(ConfigurationError, match=r"--liveness-file .*shop\.py holds something"):
        LivenessFile(precious)
    assert precious.read_text() == "app = ..."


def test_what_is_no_plain_file_is_not_taken_for_a_liveness_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(ConfigurationError, match=r"--liveness-file .* is no plain file"):
            LivenessFile(path)
        assert path.exists()


def test_a_file_left_by_an_earlier_run_is_no_sign_of_life(tmp_path: Path) -> None:
    path = tmp_path / "alive"
    path.touch()
    file = LivenessFile(path)
    assert not path.exists()
    file.touch()
    assert path.exists()
    file.remove()
    assert not path.exists()


def test_a_liveness_file_stays_where_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    file = LivenessFile(Path("alive"))
    monkeypatch.chdir(elsewhere)
    file.touch()
    assert (tmp_path / "alive").exists()
    file.remove()
    assert not (tmp_path / "alive").exists()
