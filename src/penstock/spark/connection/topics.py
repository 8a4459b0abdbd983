"""Which topics are meant."""

from penstock.spark.connection.driver_link import Line
from penstock.spark.options.source import SourceOptions


def topics_of(options: SourceOptions, line: Line) -> list[str]:
    """The topics that the options name, at this moment."""
    if options.topics_pattern is not None:
        return line.topics(options.topics_pattern)
    return list(options.topics) or [options.topic or ""]
