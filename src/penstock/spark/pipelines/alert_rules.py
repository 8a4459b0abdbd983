"""What somebody wants to be told of: a message that did not follow another in time."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.backend import keys
from penstock.errors import ConfigurationError
from penstock.options import check_duration, check_kind
from penstock.spark.options.kinds import DURATION

_PATH = re.compile(r"\$(\.[A-Za-z_][A-Za-z0-9_-]*|\[[0-9]+\])+")
_DURATIONS = ("within", "early")
_FIELDS = ("name", "after", "expect", "within", "by", "early")


@dataclass(frozen=True, kw_only=True)
class Alert:
    """No message of type `expect` within some time of one of type `after` that is about the same thing.

    `by` says what a message is about: its `key`, or what is at a JSON path of its payload, like `$.order_id`. Messages
    that are about nothing, because they have no key or nothing is at the path, are left aside. With the same type for
    both, it watches for a sign of life that does not come again.
    """

    name: str
    after: str
    expect: str
    within: timedelta
    by: str = "key"
    early: timedelta = timedelta(minutes=1)
    """How much earlier than the first one the expected message may be: two producers are not always in step."""

    def __post_init__(self) -> None:
        for field in ("name", "after", "expect", "by"):
            check_kind(f"Alert({field}=...)", getattr(self, field), str)
            if not getattr(self, field).strip() or not getattr(self, field).isprintable():
                raise ConfigurationError(f"Alert({field}=...) must be a text, not {getattr(self, field)!r}")
        if self.by != "key" and not _PATH.fullmatch(self.by):
            raise ConfigurationError(f"Alert(by={self.by!r}) cannot be used: it is key, or a path like $.order_id")
        check_duration(f"Alert(within=...) of {self.name!r}", self.within)
        check_duration(f"Alert(early=...) of {self.name!r}", self.early, least=timedelta(0))

    @property
    def within_ms(self) -> int:
        return int(self.within / timedelta(milliseconds=1))

    @property
    def early_ms(self) -> int:
        """None for a sign of life: it is not followed by itself."""
        return 0 if self.after == self.expect else int(self.early / timedelta(milliseconds=1))


def check_rules(rules: Sequence[Alert]) -> None:
    """Refuse what are no rules, and two of one name."""
    if isinstance(rules, str) or not rules or not all(isinstance(rule, Alert) for rule in rules):
        raise ConfigurationError("option rules must be a list with at least one Alert")
    names = [rule.name for rule in rules]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(
            f"two rules have the name {twice[0]!r}: each needs its own, its alerts are known by it"
        )


def read_rules(path: str | Path) -> tuple[list[str], list[Alert]]:
    """The topics and rules of a TOML file.

    topics = ["orders", "shipping"]

    [[alert]]
    name = "not shipped"
    after = "order.placed"
    expect = "order.shipped"
    within = "2h"
    by = "$.order_id"
    """
    try:
        found = tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"the rules {path} cannot be read: {error}") from error
    if unknown := sorted(found.keys() - {"topics", "alert"}):
        raise ConfigurationError(f"the rules {path} have {unknown[0]!r}: there are only topics and [[alert]]")
    topics, alerts = found.get("topics"), found.get("alert")
    if not isinstance(topics, list) or not topics or not all(isinstance(topic, str) for topic in topics):
        raise ConfigurationError(f'the rules {path} do not say which topics to read: topics = ["orders"]')
    if not isinstance(alerts, list) or not all(isinstance(alert, dict) for alert in alerts):
        raise ConfigurationError(f"the rules {path} have no rule: begin each with [[alert]]")
    for topic in topics:
        keys.check_topic(topic)
    return topics, [_alert(number, alert, path) for number, alert in enumerate(alerts, 1)]


def _alert(number: int, given: Mapping[str, Any], path: str | Path) -> Alert:
    where = f"rule {given.get('name', number)!r} of {path}"
    if unknown := sorted(given.keys() - set(_FIELDS)):
        raise ConfigurationError(f"{where} has {unknown[0]!r}: a rule has {', '.join(_FIELDS)}")
    if missing := [name for name in _FIELDS[:4] if name not in given]:
        raise ConfigurationError(f"{where} has no {missing[0]!r}")
    try:
        durations = {name: DURATION.read(str(given[name])) for name in _DURATIONS if name in given}
    except ValueError as error:
        raise ConfigurationError(f"a time of {where} cannot be used: it must be {DURATION.accepted}") from error
    return Alert(**{**given, **durations})
