"""A group that remembers what it has handled: a message that is there twice is handled once.

    python -m examples.handle_once

It prints:

    mail to ann
    2 entries, 1 mail
"""

import asyncio
from datetime import timedelta

from penstock import Delivery, Message, Penstock, Subscription
from penstock.testing import drain, published


async def main() -> None:
    async with Penstock.connect("embedded://?ephemeral=true") as app:
        options = Subscription(dedupe=timedelta(hours=24))
        mails = app.bus("mails", group="post", options=options)
        sent: list[str] = []

        @mails.on(dict)
        async def send(event: Delivery[dict]) -> None:
            print("mail to", event.body["to"])
            sent.append(event.id)

        welcome = Message({"to": "ann"})
        for _ in range(2):  # as two programs would that both believe that it is theirs to say
            await mails.publish_many([welcome])
        await drain(app, mails)
        print(len(await published(app, "mails")), "entries,", len(sent), "mail")


if __name__ == "__main__":
    asyncio.run(main())
