"""`penstock context`: servers by name, so that no URL, and no password in it, need be typed again."""

from typing import Annotated

from cyclopts import Parameter

from penstock.backend.address import parse
from penstock.cli.contexts import load_contexts, save_contexts
from penstock.cli.given import stdin
from penstock.cli.printing import Form, print_rows
from penstock.cli.usage import UsageError
from penstock.errors import ConfigurationError


def ls(*, output: Form = None) -> None:
    """List the servers that have a name. Passwords are not shown."""
    contexts = load_contexts()
    rows = [
        {"name": name, "url": _harmless(url), "current": name == contexts.current}
        for name, url in sorted(contexts.urls.items())
    ]
    print_rows(rows, output, ("name", "url", "current"))


def add(
    name: str,
    url: Annotated[str, Parameter(allow_leading_hyphen=True)] = "-",
    /,
    *,
    use: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
) -> None:
    """Give a server a name; one that has it already loses it.

    The URL is kept in a file that you alone can read: contexts.json in penstock, in your configuration directory.

    Parameters
    ----------
    name
        Of letters, digits, dots, dashes and underscores.
    url
        Like redis://user:password@host:6379/0. Without it, or as -, it is read from stdin, where no shell remembers it.
    use
        Make it the current one too.
    """
    if not name or not name.replace("-", "").replace(".", "").replace("_", "").isalnum():
        raise UsageError(f"a context has a name of letters, digits, dots, dashes and underscores, not {name!r}.")
    if url == "-":
        url = stdin().readline().decode(errors="surrogateescape").strip()
    parse(url, source="the URL")
    contexts = load_contexts()
    contexts.urls[name] = url
    if use:
        contexts.current = name
    save_contexts(contexts)


def use(name: str, /) -> None:
    """Choose the server that is meant where neither --url nor --context nor $PENSTOCK_URL names one.

    Parameters
    ----------
    name
        One that penstock context ls lists.
    """
    contexts = load_contexts()
    contexts.url(name)
    contexts.current = name
    save_contexts(contexts)


def rm(name: str, /) -> None:
    """Forget a server. If it was the current one, there is none then.

    Parameters
    ----------
    name
        One that penstock context ls lists.
    """
    contexts = load_contexts()
    contexts.url(name)
    del contexts.urls[name]
    if contexts.current == name:
        contexts.current = None
    save_contexts(contexts)


def _harmless(url: str) -> str:
    try:
        return str(parse(url))
    except ConfigurationError:
        return "unreadable: add it again"
