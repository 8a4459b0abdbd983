"""Dead letters by what went wrong: alike is together, different apart, and the numbers are those of the letters."""

import random
import re
from collections import Counter
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigurationError
from penstock.lake import Lake, tables
from penstock.lake.failures import failures
from penstock.lake.report import html
from penstock.message.ids import new_id
from tests.lake.burying import Letter, after, bury

TRACE = """Traceback (most recent call last):
  File "{home}/penstock/delivery/crew.py", line {line}, in call
    await handler(delivery)
  File "{home}/shop/billing.py", line {line}, in {name}
    raise ValueError(f"no such customer: {{customer}}")
ValueError: no such customer: {customer}
"""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


def letters(*reasons: str, **more: Any) -> list[Letter]:
    return [Letter(id=new_id(), died=after(at), reason=reason, **more) for at, reason in enumerate(reasons)]


@pytest.mark.parametrize(
    "reasons",
    [
        ("no customer 17", "no customer 4711", "no customer -3.5e10"),
        ("no customer 'bob'", "no customer 'o-12 of \"x\"'", "no customer ''"),
        ("no order o12x in shard7", "no order o3x in shard44"),
        (f"{new_id()} is taken", f"{new_id().upper()} is taken"),
        ("<Order at 0x7f00aa> can't be read, said 'x'", "<Order at 0x1> can't be read, said 'yy'"),
        ("digest deadbeef01 differs", "digest 0123456789abcdef differs", "digest a1b2c3d4e5f60718 differs"),
        ("timed  out at 12:30:01.5\nagain", "timed out at 08:01:59 again"),
    ],
)
def test_what_differs_by_values_alone_is_one_kind(lake: Lake, reasons: tuple[str, ...]) -> None:
    bury(lake, letters(*reasons))
    (found,) = failures(lake)
    assert found.letters == found.messages == len(reasons)
    assert found.reason == reasons[-1]


@pytest.mark.parametrize(
    "two",
    [
        letters("no such customer", "no such order"),
        [*letters("it failed"), *letters("it failed", error="builtins.KeyError")],
        [*letters("it failed"), *letters("it failed", group="mail")],
        [*letters("it failed"), *letters("it failed", topic="users")],
        [
            *letters("it failed", traceback=TRACE.format(home="", line=1, name="charge", customer=1)),
            *letters("it failed", traceback=TRACE.format(home="", line=1, name="refund", customer=1)),
        ],
        letters("can't read it", "cannot read it"),
    ],
)
def test_what_differs_otherwise_is_two(lake: Lake, two: list[Letter]) -> None:
    bury(lake, two)
    assert [found.letters for found in failures(lake)] == [1, 1]


def test_a_traceback_counts_by_its_functions(lake: Lake) -> None:
    """Lines change with every edit, paths with every machine, and the words at its end are the reason's business."""
    places = [("", 10, "alice"), ("/srv/app/lib", 99, "bob"), ("C:\\app", 7, "eve")]
    bury(lake, [
        letter
        for home, line, customer in places
        for letter in letters("it failed", traceback=TRACE.format(home=home, line=line, name="f", customer=customer))
    ])  # fmt: skip
    assert [found.letters for found in failures(lake)] == [3]


def test_a_kind_keeps_its_name(lake: Lake) -> None:
    """People write it down, and replay by it: another version must not call it otherwise without a reason."""
    bury(lake, letters("no customer 17", traceback=TRACE.format(home="/x", line=3, name="f", customer=17)))
    (found,) = failures(lake)
    assert (found.id, found.fingerprint, found.pattern) == ("b31ceab7d1", "dcf771db2c", "no customer <n>")


def test_the_numbers_are_those_of_the_letters(lake: Lake) -> None:
    """Against a plain count in Python."""
    dice = random.Random(7)
    ids = [new_id() for _ in range(60)]
    now = after(24 * 40)
    buried = [
        Letter(
            topic=dice.choice(["orders", "users"]), group=dice.choice(["billing", "mail"]), id=dice.choice(ids),
            died=after(24 * dice.randrange(0, 40, 3) + dice.uniform(0, 24)),
            reason=f"{dice.choice(['late', 'lost'])} {dice.random()}",
            attempts=dice.randint(1, 9), replays=dice.randint(0, 1),
        )
        for _ in range(500)
    ]  # fmt: skip
    for start in (0, 250):
        bury(lake, buried[start : start + 250])
    found = failures(lake, now=now)
    assert [one.letters for one in found] == sorted((one.letters for one in found), reverse=True)
    assert len(found) == 8
    last: dict[Any, datetime] = {}
    for letter in buried:
        who = (letter.topic, letter.group, letter.id)
        last[who] = max(letter.died, last.get(who, letter.died))
    for one in found:
        same = [
            letter for letter in buried
            if (letter.topic, letter.group, letter.reason[:4]) == (one.topic, one.group, one.pattern[:4])
        ]  # fmt: skip
        again = {
            letter.id for letter in same
            if letter.replays or last[letter.topic, letter.group, letter.id] > letter.died
        }  # fmt: skip
        assert one.letters == len(same)
        assert one.messages == len({letter.id for letter in same})
        assert one.attempts == sum(letter.attempts for letter in same)
        assert (one.first, one.last) == (min(letter.died for letter in same), max(letter.died for letter in same))
        assert one.oldest == now - one.first
        assert one.died_again == len(again)
        assert one.after_replay == sum(letter.replays for letter in same)
        newest = sorted(same, key=lambda letter: letter.died, reverse=True)
        assert set(one.ids) == {letter.id for letter in newest[:5]}
        assert sum(one.ages) == sum(bar.letters for bar in one.trend) == one.letters
        width = one.trend[1].start - one.trend[0].start
        counted = Counter(
            bar.start for letter in same for bar in one.trend if timedelta(0) <= letter.died - bar.start < width
        )
        assert {bar.start: bar.letters for bar in one.trend if bar.letters} == counted
        days = [(now - letter.died) / timedelta(days=1) for letter in same]
        assert one.ages[2:] == (
            sum(1 <= day < 7 for day in days), sum(7 <= day < 30 for day in days), sum(day >= 30 for day in days)
        )  # fmt: skip


def test_only_what_was_asked_for_counts(lake: Lake) -> None:
    bury(lake, [
        *letters(*["it failed"] * 10), *letters(*["it failed"] * 3, topic="users"),
        *letters(*["it failed"] * 2, group="mail"),
    ])  # fmt: skip
    assert [one.letters for one in failures(lake)] == [10, 3, 2]
    assert [one.letters for one in failures(lake, topics=["users"])] == [3]
    assert [one.letters for one in failures(lake, groups=["mail", "nobody"])] == [2]
    assert [one.letters for one in failures(lake, topics=["orders"], since=after(4), until=after(6))] == [2]
    assert failures(lake, topics=["nothing"]) == []
    with pytest.raises(ConfigurationError, match="topics must be a list"):
        failures(lake, topics="users")
    with pytest.raises(ConfigurationError, match="in no time zone"):
        failures(lake, since=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the case


def test_a_lake_without_dead_letters_has_no_failures(lake: Lake) -> None:
    assert failures(lake) == []
    assert "There are none." in html([], lake.path, after(0))


def test_letters_that_could_not_be_opened_are_a_kind_of_their_own(lake: Lake) -> None:
    bury(lake, letters("not a dead letter", "not a dead letter", group="", error="", broken="not a dead letter"))
    bury(lake, [Letter(id=None, died=after(0), reason="no payload", error="")])
    both = failures(lake)
    assert [(one.group, one.letters, one.messages) for one in both] == [("", 2, 2), ("billing", 1, 0)]
    assert [one.replay_command(lake.path) for one in both] == ["", ""]
    assert "None of these can be replayed" in html(both, lake.path, after(1))


def test_failures_are_a_table_of_the_lake(lake: Lake) -> None:
    bury(lake, letters("no customer 1", "no customer 2"))
    (found,) = failures(lake)
    rows = tables.query(lake, "SELECT cluster, fingerprint, pattern, count(*) AS n FROM failures GROUP BY ALL")
    assert rows.to_pylist() == [
        {"cluster": found.id, "fingerprint": found.fingerprint, "pattern": "no customer <n>", "n": 2}
    ]


class Page(HTMLParser):
    """What a browser would find: the tags, and the texts in them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.links += [f"{name}={value}" for name, value in attributes if name in ("src", "href", "onclick", "onload")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_report_shows_every_kind_and_runs_nothing(lake: Lake) -> None:
    evil = "<script>alert('x')</script><img src=x onerror=alert(1)> & \"q\" </pre>"
    bury(lake, [
        *letters(evil, evil, error="shop.<Evil>", traceback=evil, topic="a<b>", group="g'&"),
        *letters("it failed"),
    ])  # fmt: skip
    found = failures(lake, now=after(30))
    text = html(found, lake.path, after(30))
    page = Page(text)
    assert page.tags["script"] == page.tags["img"] == page.tags["link"] == 0
    assert page.links == []
    assert page.texts.count(evil) == 2
    assert page.tags["article"] == 2
    assert page.tags["rect"] >= 3
    assert any("a<b> / g'&" in part for part in page.texts)
    assert not re.search(r"https?:", text)
    assert [part for part in page.texts if part.startswith("penstock lake replay")] == [
        one.replay_command(lake.path) for one in found
    ]
