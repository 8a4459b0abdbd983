"""The options of `write` and `writeStream`: every name, what it accepts, and which of them exclude each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from penstock.errors import ConfigurationError
from penstock.message.dialects import DIALECTS
from penstock.spark.options import kinds
from penstock.spark.options.schemas import LAYOUTS
from penstock.spark.options.server import SERVER, ServerOptions, read

DELIVERIES = ("batch", "fence", "uuid", "explicit_id", "at_least_once")
SINK = SERVER | {
    "topic": kinds.TOPIC,
    "layout": kinds.choice(*LAYOUTS),
    "dialect": kinds.choice(*DIALECTS),
    "delivery": kinds.choice(*DELIVERIES),
    "window": kinds.count(5000),
    "name": kinds.TEXT,
    "orderedBy": kinds.TEXT,
    "remember": kinds.DURATION,
}
OF_SPARK = {"checkpointlocation", "queryname"}
"""What Spark hands to every sink beside our own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Where to write, and how."""

    server: ServerOptions
    topic: str | None = None
    layout: str = "envelope"
    dialect: str = "native"
    delivery: str = "batch"
    window: int | None = None
    name: str | None = None
    ordered_by: str | None = None
    remember: timedelta | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Raises `ConfigurationError` for a name, a value or a combination that cannot work."""
        return cls(**read(options, SINK, "sink", ignored=OF_SPARK))

    def __post_init__(self) -> None:
        if self.ordered_by and self.delivery != "fence":
            raise ConfigurationError(f"option orderedBy is for delivery=fence, not for delivery={self.delivery}")
        if self.name and self.delivery != "batch":
            raise ConfigurationError(
                f"option name is for delivery=batch, which knows rows again by their ids: delivery={self.delivery}"
                " cannot tell whether a write under the same name has the same rows"
            )
        if self.remember and self.delivery in ("explicit_id", "at_least_once"):
            raise ConfigurationError(
                f"option remember is for delivery=batch, fence and uuid: delivery={self.delivery} keeps nothing but the"
                " entries"
            )
        if self.layout != "envelope" and self.dialect != "native":
            raise ConfigurationError(
                f"option dialect is for layout=envelope: layout={self.layout} takes fields as such"
            )
