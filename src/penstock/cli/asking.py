"""The server of a command that looks at one or changes what is there. Never one that nobody has asked for."""

import os

from penstock.app import Penstock
from penstock.backend.address import URL_VARIABLE, parse
from penstock.cli.usage import UsageError


def app_at(url: str | None) -> Penstock:
    """An app that connects to `url`, or else to $PENSTOCK_URL; not connected yet."""
    if url is not None:
        parse(url, source="--url")
    elif not os.environ.get(URL_VARIABLE):
        raise UsageError(f"no server: give --url, or set ${URL_VARIABLE}.")
    return Penstock.connect(url)
