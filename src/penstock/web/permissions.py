"""Which topics a request may name."""

from collections.abc import Sequence
from http import HTTPStatus

from penstock.app import Penstock
from penstock.backend.keys import check_topic, is_retry
from penstock.web.answers import Refused


class Permissions:
    """Names, and beginnings of names that end in `*`; with or without the app's prefix, as everywhere."""

    def __init__(self, app: Penstock, patterns: Sequence[str], verb: str) -> None:
        self._app = app
        self._names = frozenset(app.full_name(one) for one in patterns if not one.endswith("*"))
        self._beginnings = tuple(app.full_name(one[:-1]) for one in patterns if one.endswith("*"))
        self._verb = verb

    def check(self, topic: str) -> str:
        """The topic's whole name; `Refused` if it is not allowed, `ConfigurationError` if it is no name of a topic."""
        name = self._app.full_name(topic)
        check_topic(name)
        if is_retry(name) or (name not in self._names and not name.startswith(self._beginnings)):
            raise Refused(HTTPStatus.FORBIDDEN, f"topic {topic[:100]!r} may not be {self._verb} here")
        return name
