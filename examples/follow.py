"""Following a topic without a group, from a place of one's own that survives the program.

    python -m examples.follow

It prints:

    first run:  1 2 3
    second run: 4 5
"""

import asyncio

from penstock import Cursor, Penstock, Tailed


async def numbers(app: Penstock, upto: int) -> str:
    """Everything behind the cursor, until a number is reached."""
    seen: list[int] = []
    async with app.tail("numbers", after=Cursor("copy", start="earliest", every=1)) as tail:
        async for item in tail:
            assert isinstance(item, Tailed), item  # a Gap says what is missing, and why
            seen.append(item.message.body["n"])
            if seen[-1] == upto:
                await item.commit()
                break
    return " ".join(map(str, seen))


async def main() -> None:
    async with Penstock.connect("embedded://?ephemeral=true") as app:
        await app.bus("numbers").publish_many({"n": number} for number in (1, 2, 3))
        print("first run: ", await numbers(app, upto=3))
        await app.bus("numbers").publish_many({"n": number} for number in (4, 5))
        print("second run:", await numbers(app, upto=5))


if __name__ == "__main__":
    asyncio.run(main())
