"""`penstock check`: whether what must hold of topics does hold."""

from typing import TYPE_CHECKING

from penstock.cli.dialects import Dialect
from penstock.cli.findings import print_findings
from penstock.cli.given import Count
from penstock.cli.looking import absent
from penstock.cli.printing import Form
from penstock.cli.progress import progress
from penstock.cli.servers import HERE, At, ask
from penstock.cli.shown import line_of
from penstock.errors import GroupMissingError

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.diagnosis.finding import Finding


def check(
    *topics: str, sample: Count = 1000, dialect: Dialect = "native", output: Form = None, server: At = HERE
) -> None:
    """Verify that topics are whole: keys, groups, retries, parked deliveries, dead letters, entries. Changes nothing.

    Exit code 0: everything holds. 1: something does not; each finding says what.

    Parameters
    ----------
    topics
        Look at these; at every known one unless given.
    sample
        Look at no more than so many entries of each kind, the oldest, and at a few of the newest.
    """

    async def look(app: "Penstock") -> "tuple[int, list[Finding]]":
        from penstock.diagnosis.diagnosis import Diagnosis
        from penstock.message.wire import Wire

        names = list(topics) or await app.backend.topics()
        diagnosis = Diagnosis(app.backend.speaking({name: Wire(dialect) for name in names}))
        found: list[Finding] = []
        for done, name in enumerate(names):
            show(done, len(names), line_of(name))
            try:
                found += await diagnosis.check(name, sample, known=not topics)
            except GroupMissingError:
                if (await app.backend.keys_of(name, ()))[0].found != "none":  # a group vanished meanwhile
                    raise
                raise await absent(app, name) from None
        return len(names), found

    with progress("checking") as show:
        count, found = ask(server, look)
    print_findings(found, output, fine=f"everything holds of {count:,} {'topic' if count == 1 else 'topics'}")
