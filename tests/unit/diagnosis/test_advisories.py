"""Which releases have which faults: by their own line, and never by the number that Valkey says for old clients."""

from itertools import pairwise

import pytest

from penstock.diagnosis.advisories import AS_OF, KNOWN, Advisory

LUA = Advisory("CVE", "what", ((7, 2, 11), (8, 0, 6), (8, 1, 4)))


@pytest.mark.parametrize(
    ("version", "concerned"),
    [
        ((7, 0, 15), True),  # a line that nobody mends any more
        ((7, 2, 10), True),
        ((7, 2, 11), False),
        ((7, 4, 0), True),  # a line between those that were mended
        ((8, 0, 5), True),
        ((8, 0, 6), False),
        ((8, 1, 3), True),
        ((8, 1, 10), False),
        ((9, 0, 0), False),
    ],
)
def test_a_release_is_judged_by_its_line(version: tuple[int, ...], concerned: bool) -> None:
    assert LUA.concerns(version) is concerned


def test_what_came_later_is_not_blamed_on_older_releases() -> None:
    recent = Advisory("CVE", "what", ((9, 0, 3),), since=(9, 0, 0))
    assert [recent.concerns(version) for version in ((8, 1, 0), (9, 0, 2), (9, 0, 3))] == [False, True, False]


def test_the_nearest_release_with_the_fix_is_named() -> None:
    assert LUA.fix_for((8, 0, 1)) == (8, 0, 6)
    assert LUA.fix_for((7, 0, 15)) == (7, 2, 11)


@pytest.mark.parametrize("product", KNOWN)
def test_the_table_is_in_order_and_no_newest_release_has_a_fault(product: str) -> None:
    assert AS_OF.year >= 2026
    for advisory in KNOWN[product]:
        assert list(advisory.fixed) == sorted(advisory.fixed)
    newest = max(fix for advisory in KNOWN[product] for fix in advisory.fixed)
    assert not [advisory for advisory in KNOWN[product] if advisory.concerns(newest)]
    lines = [max(advisory.fixed) for advisory in KNOWN[product] if not advisory.since > (0,)]
    assert all(older <= newer for older, newer in pairwise(lines))
