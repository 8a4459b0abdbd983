"""What is expected and what is overdue, against an oracle that sees everything at once; without Spark."""

import random
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.spark.pipelines.alert_rules import Alert, check_rules, read_rules
from penstock.spark.pipelines.overdue import Expectation, Open

RULE = Alert(
    name="r", after="placed", expect="shipped", within=timedelta(milliseconds=50), early=timedelta(milliseconds=5)
)
LIFE = Alert(name="l", after="ping", expect="ping", within=timedelta(milliseconds=50))
MOMENTS = st.lists(st.integers(0, 300), max_size=12)


def overdue(rule: Alert, placed: list[int], shipped: list[int]) -> set[int]:
    """Of all messages at once."""
    if rule is LIFE:
        return {at for at in placed if not any(at < ms <= at + 50 for ms in placed)}
    return {at for at in placed if not any(at - 5 <= ms <= at + 50 for ms in shipped)}


def replayed(rule: Alert, placed: list[int], shipped: list[int], seed: int) -> tuple[set[int], Expectation]:
    """As two topics that are read in steps of their own, with time passing to where both are."""
    order = random.Random(seed)
    state, fired = Expectation(), []
    ends = {"placed": 0, "shipped": 0}
    while min(ends.values()) < 500:
        before = dict(ends)
        for topic in ends:
            ends[topic] += order.randrange(100)
        opened = [Open(ms, "a", f"{ms}-0", None) for ms in placed if before["placed"] <= ms < ends["placed"]]
        seen = [ms for ms in shipped if before["shipped"] <= ms < ends["shipped"]]
        state.add(rule, opened, seen)
        fired += [one.ms for one in state.take_overdue(rule, min(ends.values()) - 1)]
    assert len(fired) == len(set(fired))
    return set(fired), state


@given(placed=MOMENTS, shipped=MOMENTS, seed=st.integers())
def test_in_whatever_steps_it_is_read(placed: list[int], shipped: list[int], seed: int) -> None:
    placed, shipped = sorted(set(placed)), sorted(set(shipped))
    found, state = replayed(RULE, placed, shipped, seed)
    assert found == overdue(RULE, placed, shipped)
    assert (state.open, state.seen, state.next_look(RULE)) == ([], [], 0)


@given(pings=MOMENTS, seed=st.integers())
def test_a_sign_of_life_is_followed_by_another(pings: list[int], seed: int) -> None:
    pings = sorted(set(pings))
    found, state = replayed(LIFE, pings, pings, seed)
    # Of the same topic, so both sides are read together in truth; read apart, the answer must be the same.
    assert found == overdue(LIFE, pings, pings)
    assert (state.open, state.seen) == ([], [])


def test_a_message_that_was_published_twice_is_expected_once() -> None:
    state = Expectation()
    state.add(RULE, [Open(1, "a", "1-0", "uuid"), Open(2, "a", "2-0", "uuid"), Open(1, "a", "1-0", "uuid")], [])
    assert state.take_overdue(RULE, 1000) == [Open(1, "a", "1-0", "uuid")]


GOOD = {"name": "n", "after": "a", "expect": "b", "within": timedelta(hours=2)}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"name": " "}, r"Alert\(name=...\) must be a text"),
        ({"by": "order_id"}, "it is key, or a path like"),
        ({"by": "$.x') OR ('"}, "it is key, or a path like"),
        ({"within": timedelta(0)}, "must be a timedelta from"),
        ({"early": timedelta(-1)}, "must be a timedelta from"),
        ({"after": 3}, "must be str, not 3"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        Alert(**(GOOD | change))  # type: ignore[arg-type]


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two rules have the name 'n'"):
        check_rules([Alert(**GOOD), Alert(**GOOD)])  # type: ignore[arg-type]


RULES = """
topics = ["orders"]

[[alert]]
name = "not shipped"
after = "order.placed"
expect = "order.shipped"
within = "2h"
by = "$.order_id"
"""


def test_rules_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    topics, (rule,) = read_rules(path)
    assert topics == ["orders"]
    assert (rule.name, rule.within, rule.by) == ("not shipped", timedelta(hours=2), "$.order_id")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("topics = [", "cannot be read"),
        ("[[alert]]\n", "do not say which topics"),
        ('topics = ["a"]', "have no rule"),
        ('topics = ["a"]\nrules = 1', "there are only topics"),
        (RULES.replace("2h", "2 hours"), "a time of rule 'not shipped'.* must be a time like"),
        (RULES.replace("expect =", "expects ="), "has 'expects': a rule has name, after"),
        (RULES.replace('name = "not shipped"', ""), "rule 1 of .* has no 'name'"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=complaint):
        read_rules(path)
