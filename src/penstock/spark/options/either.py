"""What can be refused before it is known whether Spark wants to read or to write."""

from collections.abc import Collection, Mapping

from penstock.errors import ConfigurationError
from penstock.spark.options.server import ServerOptions, read
from penstock.spark.options.sink import OF_SPARK, SINK, SinkOptions
from penstock.spark.options.source import SOURCE, SourceOptions

_TOPICS = ("topic", "topics", "topicsPattern")


def check(options: Mapping[str, str]) -> ServerOptions:
    """Refuse what can be right for neither side, in the same words whichever is meant.

    Spark does not say, when it makes a source, which side it will be. Some options tell; without any of those, what
    a write takes is let through, and a read is checked when Spark asks for its columns.
    """
    server: ServerOptions = read(options, SOURCE | SINK, "format", ignored=OF_SPARK)["server"]
    reads = _first(options, SOURCE.keys() - SINK.keys())
    writes = _first(options, (SINK.keys() - SOURCE.keys()) | OF_SPARK)
    if reads and writes:
        raise ConfigurationError(f"option {reads} is for reading, and option {writes} for writing: leave one out")
    if not reads:
        SinkOptions.parse(options)
    elif not _first(options, _TOPICS):
        raise ConfigurationError(
            f"option {reads} is for reading, which needs one of the options topic, topics and topicsPattern"
        )
    else:
        SourceOptions.parse(options)
    return server


def _first(options: Mapping[str, str], names: Collection[str]) -> str | None:
    # As we spell it: Spark hands names over in lower case.
    spelled = {name.lower(): name for name in names}
    return next((spelled[given.lower()] for given in options if given.lower() in spelled), None)
