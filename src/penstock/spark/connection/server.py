"""Which server a source or sink talks to. Looked up once, on the driver; executors are told the result.

Spark shows options in plans, logs and its web interface, so no option holds a password: options name an environment
variable or a file, and what is found there travels to the executors inside the task, shown by nothing.
"""

import dataclasses
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.backend.address import URL_VARIABLE, Address, Secret, parse
from penstock.backend.embedded import EmbeddedServer
from penstock.errors import ConfigurationError
from penstock.spark.options.server import ServerOptions
from penstock.spark.start.session import MASTER_VARIABLE, is_local

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_held: dict[str, EmbeddedServer] = {}


@dataclass(frozen=True, slots=True)
class Server:
    """An address to open. Printing it, or pickling it into a plan's text, shows no password."""

    address: Address

    embedded: str = ""
    """The directory of an embedded server; empty for any other."""

    machine: str = ""
    """Where that embedded server runs."""

    @classmethod
    def resolve(cls, options: ServerOptions, environ: Mapping[str, str] = os.environ) -> "Server":
        """Look up URL and password. Raises `ConfigurationError`, which names the option and holds no secret."""
        address = _with_credentials(_address(options, environ), options, environ)
        if address.kind != "embedded":
            return cls(address)
        master = environ.get(MASTER_VARIABLE, "local")
        if not is_local(master):
            raise ConfigurationError(f"an embedded server serves one machine, and the master is {master}: give a URL")
        if address.ephemeral:
            raise ConfigurationError(
                "embedded://?ephemeral=true would be another server for each process of Spark: name a directory"
            )
        running = EmbeddedServer.start(address.directory, tcp=address.tcp)
        _held[str(running.directory)] = running
        return cls(parse(running.url), str(running.directory), _machine())

    def hold(self) -> None:
        """Keep an embedded server running as long as this process does; for the driver's own processes."""
        if self.embedded and self.embedded not in _held:
            _held[self.embedded] = EmbeddedServer.start(Path(self.embedded))

    def for_executor(self) -> Address:
        """The address, as far as it means anything where this runs."""
        if self.machine and self.machine != _machine():
            raise ConfigurationError(
                "an embedded server serves one machine, and this executor runs on another: give the URL of a server"
                " that all of them can reach"
            )
        return self.address


def _address(options: ServerOptions, environ: Mapping[str, str]) -> Address:
    if options.url is not None:
        address = parse(options.url, source="option url")
        if address.holds_secrets:
            raise ConfigurationError(
                "option url holds a password, which Spark would show in plans and logs: give the whole URL by urlEnv or"
                " urlFile, or the password alone by passwordEnv or passwordFile"
            )
        return address
    if options.url_file is not None:
        return parse(_from_file("urlFile", options.url_file), source=f"the URL in {options.url_file}")
    variable = options.url_env or URL_VARIABLE
    if not environ.get(variable) and options.url_env is None:
        raise ConfigurationError(f"no server is named: give one of the options url, urlEnv and urlFile, or ${variable}")
    return parse(_from_environment("urlEnv", variable, environ), source=f"${variable}")


def _with_credentials(address: Address, options: ServerOptions, environ: Mapping[str, str]) -> Address:
    if options.password_env is not None:
        password = _from_environment("passwordEnv", options.password_env, environ)
    elif options.password_file is not None:
        password = _from_file("passwordFile", options.password_file)
    else:
        return address
    if address.secret is not None:
        raise ConfigurationError("the URL holds a password already: leave passwordEnv and passwordFile out")
    if address.kind == "embedded":
        raise ConfigurationError("an embedded server has no password: leave passwordEnv and passwordFile out")
    return dataclasses.replace(address, username=options.username, secret=Secret(password))


def _from_environment(option: str, variable: str, environ: Mapping[str, str]) -> str:
    # Not repeated, here and below: who takes the option for that of the secret itself has given the secret.
    if text := environ.get(variable):
        return text
    raise ConfigurationError(
        f"option {option} names a variable that is not set, or empty, in Spark's driver: set it before the session"
        " starts, and give its name"
    )


def _from_file(option: str, path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8").strip("\r\n")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"option {option} names a file that cannot be read by Spark's driver: {type(error).__name__}"
        ) from None
    if not text:
        raise ConfigurationError(f"option {option} names a file that is empty: write the value into it")
    return text


def _machine() -> str:
    return _BOOT.read_text().strip() if _BOOT.exists() else socket.gethostname()
