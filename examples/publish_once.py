"""Publishing that can be repeated: under one id a message is stored once, however often it is sent.

    python -m examples.publish_once

It prints:

    first: stored
    again: it was there already
    1 message on the topic
"""

import asyncio

from penstock import Penstock
from penstock.errors import PublishUnknownError
from penstock.testing import published

ORDER = "01890a5d-ac96-774b-bcce-b302099a8057"
"""From the database row, or the request: whatever is the same when the program starts over."""


async def main() -> None:
    async with Penstock.connect("embedded://?ephemeral=true") as app:
        orders = app.bus("orders")
        for try_number in ("first", "again"):
            try:
                receipt = await orders.publish({"total": 12}, id=ORDER)
            except PublishUnknownError as error:
                # The connection broke before the answer. Under the same id it is safe to send it again.
                receipt = await orders.publish({"total": 12}, id=error.id)
            print(f"{try_number}:", "it was there already" if receipt.duplicate else "stored")
        print(len(await published(app, "orders")), "message on the topic")


if __name__ == "__main__":
    asyncio.run(main())
