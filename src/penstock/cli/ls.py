"""`penstock ls`: every topic that is known, and how it stands."""

from typing import TYPE_CHECKING

from penstock.cli.printing import Form, chosen, print_rows
from penstock.cli.servers import HERE, At, ask
from penstock.cli.standing import TOPIC_COLUMNS, topic_row
from penstock.cli.tables import drawn
from penstock.overview import Overview

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.overview import TopicView

_SPARE = ("later", "ready", "parked", "pending", "groups")


def ls(*, output: Form = None, server: At = HERE) -> None:
    """List the topics that are known, with how far their slowest group is behind, dead letters, and what pins them.

    A topic is known once something was published to it, or it was adopted. A lag with ≤ is at most so many, ? is
    unknown. On a narrow terminal a table leaves out what can be spared, first of all what is 0 everywhere.
    """
    found = ask(server, lambda app: Overview(app.backend).topics())
    columns = [name for name in TOPIC_COLUMNS if name != "problem" or any(topic.problem for topic in found)]
    if chosen(output) == "table":
        _print_table(found, columns)
    else:
        print_rows((topic_row(topic, for_people=False) for topic in found), output, columns)


def _print_table(found: "Sequence[TopicView]", columns: "Sequence[str]") -> None:
    from penstock.cli.screen import Screen

    console = Screen()
    rows = [topic_row(topic, for_people=True) for topic in found]
    console.print(drawn(columns, rows, console.width, spare=_SPARE))
