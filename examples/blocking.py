"""From a program without an event loop: publish, enqueue, ask how a job stands, look at dead letters.

    python -m examples.blocking

It prints:

    published 3
    the job is queued
    0 dead letters
"""

from penstock.sync import Penstock


def main() -> None:
    with Penstock.connect("embedded://?ephemeral=true") as app:
        orders = app.bus("orders", group="billing")
        receipts = orders.publish_many({"order": number} for number in range(3))
        print("published", len(receipts))
        job = app.jobs("images").enqueue({"image": "a.png"})
        print("the job is", job.status().value)
        print(sum(1 for _ in orders.dead), "dead letters")


if __name__ == "__main__":
    main()
