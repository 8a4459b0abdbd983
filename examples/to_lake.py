"""Spark archives two topics to a lake of Parquet files, and SQL asks it, without Spark.

    python -m examples.to_lake

It prints:

    5 entries archived, then 0
    ann 12
    bo 1

Needs `pip install 'penstock[spark,lake]'`.
"""

import tempfile

from penstock.backend.embedded import EmbeddedServer
from penstock.lake import Lake, tables
from penstock.spark import session
from penstock.spark.pipelines.archive import Archive
from penstock.sync import Penstock

ORDERS = (("ann", 5), ("ann", 7), ("bo", 1))


def main() -> None:
    with EmbeddedServer.start(ephemeral=True) as server, tempfile.TemporaryDirectory() as place:
        with Penstock.connect(server.url) as app:
            app.bus("orders").publish_many({"customer": name, "total": total} for name, total in ORDERS)
            app.bus("users").publish_many({"name": name} for name in ("ann", "bo"))
        archive = Archive(lake=place, topics=["orders", "users"], url=server.url)
        spark = session("to a lake")
        counts = [archive.run(spark) for _ in range(2)]  # the second run finds nothing new
        print(f"{counts[0]} entries archived, then {counts[1]}")
        sums = "SELECT customer, sum(total) AS total FROM orders GROUP BY customer ORDER BY customer"
        for row in tables.query(Lake.open(place), sql=sums).to_pylist():
            print(row["customer"], row["total"])


if __name__ == "__main__":
    main()
