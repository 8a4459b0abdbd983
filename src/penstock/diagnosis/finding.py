"""What a rule says."""

import shlex
from typing import Literal, Self

from msgspec import Struct

from penstock.backend.address import Address
from penstock.backend.evidence import ServerFacts

Level = Literal["wrong", "note"]
"""`note`: worth knowing, and nothing has to be done at once."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that a rule has found, with what it is known by and what mends it."""

    rule: str
    """The name of the rule, as `--skip` takes it."""

    subject: str
    """`server`, `topic`, `topic/group`, or what of this machine."""

    what: str
    evidence: tuple[str, ...] = ()
    """What was seen: numbers, ids and names as the server has them."""

    remedy: str
    """The command that mends it, and nothing else, so that it can be pasted; or, where none can, what to do."""

    besides: str = ""
    """What to know about the remedy, and what else can be done."""

    level: Level = "wrong"
    refuses_writes: bool = False
    """While it is so, the server takes nothing, or nothing new: no topic gets on."""

    @classmethod
    def of(
        cls,
        subject: str,
        rule: str,
        what: str,
        *evidence: str,
        remedy: str,
        besides: str = "",
        level: Level = "wrong",
        refuses_writes: bool = False,
    ) -> Self:
        """The same, with the evidence line by line."""
        return cls(
            rule=rule, subject=subject, what=what, evidence=evidence, remedy=remedy, besides=besides, level=level,
            refuses_writes=refuses_writes,
        )  # fmt: skip


def place(topic: str, group: str | None = None) -> str:
    return topic if group is None else f"{topic}/{group}"


def escaped(name: str) -> str:
    """A name on one line, whatever is in it."""
    return name if name.isprintable() else name.encode("unicode_escape").decode()


def command(*words: str) -> str:
    """A command line of ours that a shell takes as it is."""
    return shlex.join(["penstock", *words])


def client_command(server: ServerFacts, *words: str, login: bool = True) -> str:
    """A command line of the server's own client that reaches it, as the user we are; the password it asks for itself.

    Without `login`, as whoever has to be somebody else. Where the server is, is left out if it is not known.
    """
    client = "valkey-cli" if server.product == "valkey" else "redis-cli"
    place = [] if server.address is None else [*_place(server.address), *(_login(server.address) if login else ())]
    return shlex.join([client, *place, *words])


def _place(address: Address) -> list[str]:
    where = ["-s", address.path] if address.kind == "unix" else ["-h", address.host, "-p", str(address.port)]
    given, secured = address.options, []
    if address.kind == "tls":
        certificate = given.get("ssl_certfile")
        # A file of a certificate may have the key in it, which the client wants to be named all the same.
        files = {"--cacert": given.get("ssl_ca_certs"), "--cert": certificate}
        files["--key"] = given.get("ssl_keyfile", certificate)
        secured = ["--tls", *(word for name, path in files.items() if path for word in (name, path))]
    return [*where, *secured, *(["-n", str(address.db)] if address.db else [])]


def _login(address: Address) -> list[str]:
    if address.secret is None:
        return []
    return [*(["--user", address.username] if address.username else []), "--askpass"]


def amount(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
