"""What a single entry may be."""

from dataclasses import dataclass

from penstock.errors import ConfigurationError
from penstock.options.checks import check_count

_MOST_FIELDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a single entry may be. Checked before anything is decoded, and before anything is sent."""

    payload_bytes: int = 1024 * 1024
    """Longest payload, and longest value of any other field that is read."""

    fields: int = 64
    """Most fields in one entry; at most 1,000, which is what the server's scripts can pass on."""

    depth: int = 100
    """Deepest nesting of arrays and objects in JSON."""

    def __post_init__(self) -> None:
        for name in ("payload_bytes", "fields", "depth"):
            check_count(f"Limits({name}=...)", getattr(self, name), least=2 if name == "fields" else 1)
        if self.fields > _MOST_FIELDS:
            raise ConfigurationError(f"Limits(fields=...) must be at most {_MOST_FIELDS}, not {self.fields}")
