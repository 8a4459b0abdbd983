"""How messages are written on a topic, as the command line says it."""

from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

DialectName: TypeAlias = Literal["native", "cloudevents", "enveloped", "flat", "job"]

Dialect: TypeAlias = Annotated[
    DialectName, Parameter(help="How messages are written on the topic, if not natively.", show_default=False)
]
"""For an argument of a command that opens messages: `dialect: Dialect = "native"`."""
