"""`penstock ls`: every topic that is known, and how it stands."""

from penstock.cli.printing import Form, chosen, print_rows
from penstock.cli.servers import HERE, At, ask
from penstock.cli.standing import TOPIC_COLUMNS, topic_row
from penstock.overview import Overview


def ls(*, output: Form = None, server: At = HERE) -> None:
    """List the topics that are known, with how far their slowest group is behind, dead letters, and what pins them.

    A topic is known once something was published to it, or it was adopted. A lag with ≤ is at most so many, ? is
    unknown.
    """
    found = ask(server, lambda app: Overview(app.backend).topics())
    is_table = chosen(output) == "table"
    columns = [name for name in TOPIC_COLUMNS if name != "problem" or any(topic.problem for topic in found)]
    print_rows((topic_row(topic, for_people=is_table) for topic in found), output, columns)
