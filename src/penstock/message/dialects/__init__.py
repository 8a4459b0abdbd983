"""How messages look on a stream. One dialect per topic; `native` unless the topic is shared with another system."""

from collections.abc import Callable, Mapping

from penstock.message.bodies import Bodies
from penstock.message.dialects.base import Dialect
from penstock.message.dialects.cloudevents import CloudEvents
from penstock.message.dialects.enveloped import Enveloped
from penstock.message.dialects.flat import Flat
from penstock.message.dialects.job import Job
from penstock.message.dialects.native import Native

DIALECTS: Mapping[str, Callable[[Bodies], Dialect]] = {
    "native": Native,
    "cloudevents": CloudEvents,
    "job": Job,
    "enveloped": Enveloped,
    "flat": Flat,
}

__all__ = ["DIALECTS", "Dialect"]
