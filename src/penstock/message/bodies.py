"""Bodies under the limits: the catalog, the codecs and the caps, in the one place every dialect goes through.

Whatever `write` returns, `read` with the same catalog and limits accepts: it has been read once before it is returned.
"""

from collections.abc import Iterable
from typing import Any

from penstock.errors import ConfigurationError, EncodeError
from penstock.message.catalog import Catalog
from penstock.message.codec import JSON, OCTETS, BytesCodec, Codec, JsonCodec
from penstock.message.faults import Unreadable, describe
from penstock.message.strict_json import decode, encode, parse, refuse_deep
from penstock.options import Limits


class Bodies:
    def __init__(self, types: Catalog, limits: Limits, codecs: Iterable[Codec] = ()) -> None:
        self.types = types
        self.limits = limits
        self.depth = limits.depth
        self.longest = limits.payload_bytes
        self._json = JsonCodec(limits.depth)
        self._codecs: dict[str, Codec] = {JSON: self._json, OCTETS: BytesCodec()}
        for codec in codecs:
            if not codec.content_type or codec.content_type != _essence(codec.content_type):
                raise ConfigurationError(f"not a bare lower-case content type: {codec.content_type!r}")
            self._codecs[codec.content_type] = codec

    def read(self, payload: bytes, type_name: str | None, content_type: str | None = None) -> Any:
        """The body. `payload` must be within the cap already; any exception means that it is malformed."""
        if content_type is None:
            tp = None if type_name is None else self.types.find(type_name)
            return parse(payload, self.depth) if tp is None else self._json.decode(payload, tp)
        codec = self._codec(content_type)
        if codec is None:
            raise Unreadable(f"unknown content type {content_type[:80]!r}")
        return codec.decode(payload, self.types.find(type_name))

    def write(self, body: Any, type_name: str | None, content_type: str | None = None) -> bytes:
        """The payload, within the cap and proven readable, or `EncodeError`."""
        is_plain = type(body) is dict or type(body) is list
        if is_plain and content_type is None and (type_name is None or self.types.find(type_name) is None):
            payload = self.write_plain(body)
            if payload is not None:
                return payload
        codec = self._json if content_type is None else self._codec(content_type)
        if codec is None:
            raise EncodeError(f"no codec for content type {content_type!r}")
        try:
            payload = codec.encode(body)
        except (EncodeError, MemoryError):
            raise
        except Exception as error:
            raise EncodeError(f"a body of type {type(body).__name__} cannot be written: {describe(error)}") from error
        if len(payload) > self.longest:
            raise EncodeError(f"the payload has {len(payload)} bytes, the limit is {self.longest}")
        try:
            codec.decode(payload, self.types.find(type_name))
        except MemoryError:
            raise
        except Exception as error:
            raise EncodeError(f"no reader could read this body back: {describe(error)}") from error
        return payload

    def write_plain(self, body: Any) -> bytes | None:
        """The payload of a dict or list that reads back equal, which proves it; None where `write` must look closer."""
        try:
            payload = encode(body)
            if len(payload) > 2 * self.depth:
                refuse_deep(payload, self.depth)
            return payload if len(payload) <= self.longest and decode(payload) == body else None
        except Exception:  # noqa: BLE001
            # The closer look will fail too, and knows how to say it.
            return None

    def document(self, raw: bytes) -> Any:
        """A plain JSON value under the limits."""
        return parse(raw, self.depth)

    def typed(self, value: Any, type_name: str | None) -> Any:
        """The body that an already parsed plain JSON value stands for."""
        tp = self.types.find(type_name)
        return value if tp is None else self._json.decode(encode(value), tp)

    def _codec(self, content_type: str) -> Codec | None:
        essence = _essence(content_type)
        found = self._codecs.get(essence)
        return self._json if found is None and essence.endswith("+json") else found


def _essence(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()
