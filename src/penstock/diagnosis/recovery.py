"""Commands that bring back from a lake what a topic lost. Each is a dry run, which says what `--yes` would bring."""

from collections.abc import Sequence

from penstock.backend.facts import TopicFacts, position, written_at
from penstock.diagnosis.finding import command
from penstock.message.times import write_time

_LAKE = ("--lake", "DIR", "--id", "NAME")
ASIDE = "it is put on topic OTHER, for its reader to take it from there"
"""What becomes of what is brought to another topic."""

_BEGINNING = "0-0"


def to_group(topic: str, group: str, chosen: Sequence[str]) -> str:
    """Bring them to this group of workers alone."""
    return _replay(topic, chosen, "--group", group)


def to_another_topic(topic: str, chosen: Sequence[str]) -> str:
    """For readers without a retry stream: whoever reads the topic itself would be given them again."""
    return _replay(topic, chosen, "--to", "OTHER")


def missing(facts: TopicFacts, place: str) -> list[str]:
    """The options that choose what is not there any more behind this place, and nothing that is, or comes later."""
    options, conditions = list[str](), list[str]()
    # Many entries are written in one millisecond: moments alone would take in some that are not missing.
    if place != _BEGINNING:
        ms, number = position(place)
        options += _moment("--since", place)
        conditions.append(f"(epoch_ms(ts) > {ms} OR seq > {number})")
    ms, number = position(facts.first_id) if facts.first_id else _behind(facts.last_id)
    options += _moment("--until", f"{ms + bool(number)}-0")
    if number:
        conditions.append(f"(epoch_ms(ts) < {ms} OR seq < {number})")
    return [*options, *(["--where", " AND ".join(conditions)] if conditions else [])]


def _replay(topic: str, chosen: Sequence[str], *whereto: str) -> str:
    return command("lake", "replay", *_LAKE, "--topic", topic, *whereto, *chosen)


def _behind(id: str) -> tuple[int, int]:
    ms, number = position(id)
    return ms, number + 1


def _moment(option: str, id: str) -> list[str]:
    at = written_at(id)
    return [] if at is None else [option, write_time(at)]
