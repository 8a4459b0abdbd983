"""What can be refused before it is known whether Spark wants to read or to write."""

from collections.abc import Mapping

from penstock.errors import ConfigurationError
from penstock.spark.options.server import ServerOptions, unknown
from penstock.spark.options.sink import OF_SPARK, SINK, SinkOptions
from penstock.spark.options.source import SOURCE, SourceOptions


def check(options: Mapping[str, str]) -> ServerOptions:
    """Refuse options that fit neither side. Spark does not say, when it makes a source, which one it will be."""
    names = {name.lower() for name in SOURCE | SINK} | OF_SPARK
    for given in options:
        if given.lower() not in names and not given.startswith("__"):
            raise unknown(given, SOURCE | SINK, "format")
    try:
        return SourceOptions.parse(options).server
    except ConfigurationError as wrong_source:
        try:
            return SinkOptions.parse(options).server
        except ConfigurationError as wrong_sink:
            only_sink = {name.lower() for name in SINK.keys() - SOURCE.keys()} | OF_SPARK
            is_sink = any(name.lower() in only_sink for name in options)
            raise (wrong_sink if is_sink else wrong_source) from None
