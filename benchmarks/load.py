"""What every benchmark sends: about 200 bytes of JSON, the same for all sides. Needs nothing but Python."""

from typing import Any

PAYLOAD_BYTES = 200
_LONG_AGO = 1_700_000_000_000_000_000
_PAD = "x" * 73


def payload(number: int, sent_ns: int = _LONG_AGO) -> dict[str, Any]:
    """The body of message `number`; `sent_ns` is when it was sent, where somebody measures that."""
    return {
        "id": number,
        "ts": sent_ns,
        "user": f"user-{number % 1_000_000:06d}",
        "kind": "order.created",
        "amount": 12.5,
        "tags": ["a", "b", "c"],
        "note": _PAD,
    }
