"""What happens, as events and as metrics for Prometheus.

    python -m examples.measured

It prints:

    Failed: ValueError
    penstock_handled_total 2
    penstock_failed_total 1

Needs `pip install 'penstock[metrics]'`.
"""

import asyncio
from datetime import timedelta

from prometheus_client import CollectorRegistry

from penstock import Delivery, Penstock, Retry, events
from penstock.telemetry import Metrics
from penstock.testing import drain


async def main() -> None:
    registry = CollectorRegistry()
    app = Penstock.connect("embedded://?ephemeral=true")
    app.listen(Metrics(registry))
    app.listen(lambda event: print("Failed:", type(event.error).__name__) if isinstance(event, events.Failed) else None)
    orders = app.bus("orders", group="billing", retry=Retry(initial=timedelta(milliseconds=20)))

    @orders.on(dict)
    async def charge(event: Delivery[dict]) -> None:
        if event.body["order"] == 1 and event.attempt == 1:
            raise ValueError("not yet")

    async with app:
        await orders.publish_many({"order": number} for number in range(2))
        await drain(app, orders)
    labels = {"topic": "orders", "group": "billing"}
    print("penstock_handled_total", int(registry.get_sample_value("penstock_handled_total", labels) or 0))
    failed = {**labels, "error": "ValueError"}
    print("penstock_failed_total", int(registry.get_sample_value("penstock_failed_total", failed) or 0))


if __name__ == "__main__":
    asyncio.run(main())
