"""Streams in and out of Spark: `spark.read`, `readStream`, `write` and `writeStream` with `.format("penstock")`.

Importing this loads neither Spark nor Java; `session()` does.
"""

from penstock.spark.start.session import session as session
