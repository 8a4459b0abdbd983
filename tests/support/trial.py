"""An app and a flow, for the commands that run one."""

from typing import Any

from penstock import Delivery, Penstock
from penstock.spark import flow

app = Penstock.connect()
orders = app.bus("orders", group="billing")


@orders.on(dict)
async def bill(order: Delivery[dict[str, Any]]) -> None:
    """Done with it."""


@flow("copy", topics="orders", to="copies")
def copy(rows: Any) -> Any:
    return rows
