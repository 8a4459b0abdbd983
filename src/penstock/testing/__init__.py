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

from penstock.testing.draining import drain, published, settled
from penstock.testing.fixtures import penstock_app, penstock_server, penstock_url
from penstock.testing.recorder import Recorder, app_events

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
