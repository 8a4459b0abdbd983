"""Options of the source that a pipeline passes on for its user."""

from collections.abc import Mapping

from penstock.errors import ConfigurationError

_SAID = ("topic", "topics", "topicspattern", "group", "url", "mode", "layout", "view", "maxentriespertrigger")


def check_more(given: Mapping[str, str], what: str = "options", said: tuple[str, ...] = ()) -> None:
    """`ConfigurationError` if an option is among them that the pipeline, or whoever calls this, sets by itself."""
    for name in given:
        if name.lower() in (*_SAID, *said):
            raise ConfigurationError(f"option {what} has {name!r}, which is set otherwise: leave it out")
