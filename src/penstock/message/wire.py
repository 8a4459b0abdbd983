"""Messages to entry fields and back, for one topic's dialect.

`pack` raises nothing but `EncodeError`, `unpack` nothing but `MalformedError`, whatever they are given. Only running
out of memory passes through, because it says nothing about the message.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from penstock.errors import ConfigurationError, EncodeError, MalformedError
from penstock.message.bodies import Bodies
from penstock.message.catalog import Catalog
from penstock.message.codec import Codec
from penstock.message.dialects import DIALECTS, Dialect
from penstock.message.faults import describe
from penstock.message.message import Message
from penstock.options import Limits

UnpackTogether: TypeAlias = Callable[[Sequence[Sequence[bytes]]], list[Message[Any]] | None]


def _one_by_one(entries: Sequence[Sequence[bytes]]) -> None:
    """Of a dialect that has no shorter way."""


class Wire:
    """How one topic's messages look on its stream."""

    def __init__(
        self,
        dialect: str | Callable[[Bodies], Dialect] = "native",
        types: Catalog | Iterable[Any] | Mapping[str, Any] = (),
        limits: Limits | None = None,
        codecs: Iterable[Codec] = (),
    ) -> None:
        self.types = types if isinstance(types, Catalog) else Catalog(types)
        self.limits = limits or Limits()
        make = DIALECTS.get(dialect) if isinstance(dialect, str) else dialect
        if make is None:
            raise ConfigurationError(f"no dialect {dialect!r}: choose one of {', '.join(sorted(DIALECTS))}")
        self._make = make
        self._codecs = tuple(codecs)
        self._dialect = make(Bodies(self.types, self.limits, self._codecs))
        self.try_unpack = self._dialect.unpack
        """For loops that can do without a layer: `unpack` that raises anything, which `refusal` knows to explain."""

        self.unpack_together: UnpackTogether = getattr(self._dialect, "unpack_together", _one_by_one)
        """What `unpack` gives for each of these entries, faster; None if they are to be unpacked one by one."""

    def copy(self) -> "Wire":
        """The same format, with a catalog of its own: types added to one are unknown to the other."""
        return Wire(self._make, self.types.copy(), self.limits, self._codecs)

    def pack(self, message: Message[Any], topic: str = "") -> list[bytes]:
        """Field, value, field, value, …: what `unpack` reads back as the same message, as far as a dialect can say it.

        A header that only repeats a dialect's default may come back absent; keys of plain objects come back as text.

        `topic` is written by the dialects whose documents name it (enveloped must, cloudevents may).
        """
        try:
            return self._dialect.pack(message, topic)
        except (EncodeError, MemoryError):
            raise
        except Exception as error:
            raise EncodeError(f"the message cannot be written: {describe(error)}") from error

    def unpack(self, topic: str, entry_id: str, fields: Sequence[bytes]) -> Message[Any]:
        """The message in an entry; `MalformedError` keeps `fields` exactly as they were."""
        try:
            return self.try_unpack(topic, entry_id, fields)
        except Exception as error:
            raise self.refusal(topic, entry_id, fields, error) from error

    def refusal(self, topic: str, entry_id: str, fields: Sequence[bytes], error: Exception) -> MalformedError:
        """What `unpack` raises where `try_unpack` has raised `error`."""
        if isinstance(error, MemoryError):
            raise error
        return MalformedError(topic, entry_id, describe(error), fields)
