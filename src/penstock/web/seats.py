"""How many follow, and no more than that: each open stream costs memory and a file descriptor."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from penstock.web.answers import Refused, try_later
from penstock.web.options import WebOptions


class Seats:
    """Counts the streams of a gateway, for each topic and in all."""

    def __init__(self, options: WebOptions) -> None:
        self._options = options
        self._topics: Counter[str] = Counter()
        self.taken = 0

    @contextmanager
    def seat(self, topic: str) -> Iterator[None]:
        """One more, until this is left; `Refused` if there is no room."""
        options = self._options
        if self.taken >= options.connections:
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{self.taken} clients are connected, and there is room for no more: try again later",
                try_later(options.retry),
            )
        if self._topics[topic] >= options.per_topic:
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{options.per_topic} clients follow {topic!r}, and there is room for no more: try again later",
                try_later(options.retry),
            )
        self.taken += 1
        self._topics[topic] += 1
        try:
            yield
        finally:
            self.taken -= 1
            self._topics[topic] -= 1
            if not self._topics[topic]:
                del self._topics[topic]
