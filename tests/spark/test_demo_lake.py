"""The lake of the demo, which a Spark of its own fills."""

import pytest

from penstock.cli.demo.script import Script
from tests.support.demo import play, table


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(180)
async def test_spark_has_archived_everything_and_nothing_it_says_spoils_the_view(
    capfd: pytest.CaptureFixture[str],
) -> None:
    shown, failure = await play(Script(orders=200))
    assert failure is None
    archived = {what: cells for what, cells in table(shown).items() if what.startswith("lake")}
    assert archived == {
        "lake: orders, each once": ("201", "201", "✓"),
        "lake: changes, each once": ("199", "199", "✓"),
        "lake: the total of orders = charged": ("21,791", "21,791", "✓"),
    }
    assert capfd.readouterr() == ("", "")
