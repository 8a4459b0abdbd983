"""What every option is checked by: each refuses with the name of the option, and what it may be."""

from datetime import timedelta

from penstock.errors import ConfigurationError

_LONGEST = timedelta(days=36_500)  # what lies beyond overflows somewhere


def check_count(what: str, value: int, *, least: int = 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"{what} must be a whole number of at least {least}, not {value!r}")


def check_name(what: str, name: str) -> None:
    """Refuse what cannot be the name of a group, a consumer or a reader."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"a {what} name is a non-empty string, not {name!r}")
    if not name.isprintable():
        raise ConfigurationError(f"the {what} name {name!r} has characters that cannot be printed")
    if len(name.encode()) > 256:
        raise ConfigurationError(f"the {what} name {name[:40]!r}… is longer than 256 bytes")


def check_flag(what: str, value: bool) -> None:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{what} must be True or False, not {value!r}")


def check_kind(what: str, value: object, *kinds: type) -> None:
    if not isinstance(value, kinds):
        names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        raise ConfigurationError(f"{what} must be {names}, not {value!r}")


def check_duration(what: str, value: timedelta, *, least: timedelta = timedelta(milliseconds=1)) -> None:
    if not isinstance(value, timedelta) or not least <= value <= _LONGEST:
        raise ConfigurationError(f"{what} must be a timedelta from {least} to {_LONGEST.days} days, not {value!r}")
