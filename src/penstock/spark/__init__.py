"""Streams in and out of Spark: `spark.read`, `readStream`, `write` and `writeStream` with `.format("penstock")`, and
jobs of one's own with `flow`.

Importing this loads neither Spark nor Java; `session()` does.
"""

from penstock.spark.flows.flow import FlowOptions as FlowOptions
from penstock.spark.flows.flow import Table as Table
from penstock.spark.flows.flow import Topic as Topic
from penstock.spark.flows.flow import flow as flow
from penstock.spark.start.session import session as session
