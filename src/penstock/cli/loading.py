"""From `MODULE:APP` and the options to an app that knows its server. Whatever is wrong is said in one line."""

import logging
import os
import sys
import traceback
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from penstock.backend.address import URL_VARIABLE, parse, resolve
from penstock.cli.usage import UsageError
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.app import Penstock


class ImportFailedError(PenstockError):
    """The user's module raised while it was imported."""


def check_target(target: str) -> None:
    module, _, name = target.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), *name.split(".")]):
        raise UsageError(f"say which app to run as MODULE:APP, as in shop.orders:app, not as {target!r}.")


def load_app(target: str, *, handled: bool = True) -> "Penstock":
    """The app that `target` names; if `handled`, with a handler. Modules in the current directory can be imported."""
    from penstock.app import Penstock  # it loads the client, which `--help` does not need

    check_target(target)
    module_name, _, path = target.partition(":")
    module = import_users_module(module_name)
    found: object = module
    for name in path.split("."):
        if not hasattr(found, name):
            raise UsageError(f"module {module_name!r} has no {path!r}: {_suggestion(module)}.")
        found = getattr(found, name)
    if not isinstance(found, Penstock):
        raise UsageError(f"{target} is of type {type(found).__name__}, no Penstock: {_suggestion(module)}.")
    if handled and not found.handled_faces:
        raise UsageError(
            f"{target} has no handlers, so there is nothing to run: register them with @bus.on(...) in {module_name!r},"
            " or in a module that it imports."
        )
    return found


def log_events() -> None:
    """Have what is logged written to stderr, unless the user's module has set up logging in its own way."""
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")


def choose_server(app: "Penstock", url: str | None, *, embedded: bool, alone: bool) -> str:
    """Point `app` to the server to use, and name it, without its password. Never one that nobody has asked for.

    Not `alone`: other processes run the same app, and must meet on one server.
    """
    if app.url is None and app.has_address:
        if url is not None or embedded:
            raise UsageError("the app connects as the client it was given does: leave --url and --embedded out.")
        return "the server of its own client"
    if embedded:
        url = "embedded://"
    if url is not None:
        app.url = url
    if app.url is None and not os.environ.get(URL_VARIABLE):
        raise UsageError(
            f"no server: give --url, or set ${URL_VARIABLE}, or give --embedded for a private server on this machine."
        )
    address = resolve(app.url)
    if address.ephemeral and not alone:
        raise UsageError(f"{address} is a server for one process: use --workers 1, or --embedded.")
    return str(address)


def check_server(url: str | None, *, embedded: bool) -> None:
    """What can be said about the options before the app is loaded."""
    if url is not None and embedded:
        raise UsageError("--embedded is a server of its own, so it cannot go with --url: give one of them.")
    if url is not None:
        parse(url, source="--url")


def import_users_module(name: str) -> ModuleType:
    """The module, looked for in the current directory too; `UsageError` if there is none."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(
                f"there is no module {error.name!r}: run this in the directory that it is in, or install it."
            ) from None
        raise _failed(name, error) from error
    except Exception as error:
        raise _failed(name, error) from error


def _failed(name: str, error: Exception) -> ImportFailedError:
    # The one line cannot tell where: that is in the user's own code, so its traceback is what helps.
    traceback.print_exception(error)
    return ImportFailedError(f"module {name!r} raised {type(error).__name__} while it was imported: see above")


def _suggestion(module: ModuleType) -> str:
    from penstock.app import Penstock

    apps = [name for name, value in vars(module).items() if isinstance(value, Penstock)]
    if not apps:
        return f"make one there, as in app = Penstock.connect(), or name another module than {module.__name__!r}"
    return f"there is {' and '.join(f'{module.__name__}:{name}' for name in apps)}"
