"""What every benchmark sends: about 200 bytes of JSON, the same for all sides."""

from typing import Any

PAYLOAD_BYTES = 201
_PAD = "x" * 64


def payload(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "ts": 1_700_000_000_000_000_000,
        "user": f"user-{number % 1_000_000:06d}",
        "kind": "order.created",
        "amount": 12.5,
        "tags": ["a", "b", "c"],
        "note": _PAD,
    }
