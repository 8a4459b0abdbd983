"""Whatever is in a message, one event arrives, with the data that was sent and the id of nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.web.frames import HEARTBEAT, frame, retry_hint
from tests.support.sse import Dispatched, Parser

NASTY = st.text(alphabet=st.sampled_from('a:{" \r\n\t\0\u2028é'), max_size=30)


def as_lines(text: str) -> str:
    """What is left of line breaks: a browser sees them all as LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


@given(st.lists(NASTY, max_size=5), st.integers(1, 7))
def test_any_data_arrives_as_one_event_however_it_is_cut(texts: list[str], portion: int) -> None:
    sent = b"".join(frame(text.encode(), id=str(number)) + HEARTBEAT for number, text in enumerate(texts, 1))
    parser = Parser()
    got = [event for at in range(0, len(sent), portion) for event in parser.feed(sent[at : at + portion])]
    assert got == [Dispatched("message", as_lines(text), str(number)) for number, text in enumerate(texts, 1)]


def test_heartbeats_and_hints_move_no_id_and_are_no_events() -> None:
    parser = Parser()
    (seen,) = parser.feed(frame(b"1", id="e.5-0") + HEARTBEAT + retry_hint(2.5) + HEARTBEAT)
    assert (seen.last_id, parser.last_id, parser.retry, parser.comments) == ("e.5-0", "e.5-0", 2500, 2)


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "a\0b"])
def test_an_id_or_a_name_cannot_smuggle_in_a_line(bad: str) -> None:
    with pytest.raises(ConfigurationError):
        frame(b"", id=bad)
    with pytest.raises(ConfigurationError):
        frame(b"", event=bad)
