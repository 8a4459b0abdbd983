"""For the tests of your own program: a real server, an app on it, and ways to wait for what must happen.

In `conftest.py`:

    pytest_plugins = ["penstock.testing"]

and in a test:

    async def test_an_order_is_charged(penstock_app):
        orders = penstock_app.bus("orders", group="billing")
        orders.on(OrderPlaced)(charge)
        await orders.publish(OrderPlaced("o-1", 1200))
        await drain(penstock_app, orders)
        assert [message.body for message in await published(penstock_app, "receipts")] == [...]

An app that your program declares itself needs no fixture of ours but `penstock_url`, which sets $PENSTOCK_URL.

PYTEST_DONT_REWRITE: nothing here is to be rewritten, and a conftest that imports from here must not be warned of it.
"""

from typing import TYPE_CHECKING, Any

from penstock.testing.draining import drain, published, settled
from penstock.testing.recorder import Recorder, app_events

if TYPE_CHECKING:
    from penstock.testing.fixtures import penstock_app, penstock_server, penstock_url

__all__ = [
    "Recorder",
    "app_events",
    "drain",
    "penstock_app",
    "penstock_server",
    "penstock_url",
    "published",
    "settled",
]

if not TYPE_CHECKING:  # to a type checker, a name that is misspelt would be one of these

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
        from penstock.testing import fixtures  # only now: it needs pytest, which who merely waits may not have

        return getattr(fixtures, name)


def __dir__() -> list[str]:
    return __all__
