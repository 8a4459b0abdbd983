"""The verdict on a run: every invariant, over the journals and what the server holds in the end."""

from collections.abc import Iterable

from msgspec import Struct

from tests.fault import conduct, keeping
from tests.fault.history import History
from tests.fault.journal import Line
from tests.fault.rules import Check, Rules, Violation
from tests.fault.state import State

INVARIANTS: dict[str, Check] = {
    "I1": keeping.i1_nothing_is_lost,
    "I2": keeping.i2_nothing_is_invented,
    "I3": keeping.i3_one_entry_per_message,
    "I4": conduct.i4_nothing_is_repeated_without_need,
    "I5": conduct.i5_budgets_and_blame,
    "I6": keeping.i6_everything_is_settled,
    "I9": keeping.i9_loss_is_loud,
    "I10": conduct.i10_bounded,
    "I11": conduct.i11_it_goes_on,
    "I12": conduct.i12_no_secrets,
}
_MOST_SHOWN = 5


class Verdict(Struct, frozen=True):
    """What came out, with the numbers that show it was no empty run."""

    violations: tuple[Violation, ...]
    intended: int
    acked: int
    unknown: int
    failed: int
    handled: int
    dead: int
    repeated: int
    """Handled to the end more than once, inside the documented window."""

    def __str__(self) -> str:
        by_kind: dict[str, list[Violation]] = {}
        for violation in self.violations:
            by_kind.setdefault(violation.invariant, []).append(violation)
        lines = []
        for kind, found in by_kind.items():
            lines += [str(violation) for violation in found[:_MOST_SHOWN]]
            if len(found) > _MOST_SHOWN:
                lines.append(f"{kind}: and {len(found) - _MOST_SHOWN} more")
        return "\n".join(lines) or "clean"


def check(lines: Iterable[Line], state: State, rules: Rules) -> Verdict:
    """Look at everything; raises nothing for what it finds."""
    history = History(lines)
    violations = [
        Violation(name, text) for name, invariant in INVARIANTS.items() for text in invariant(history, state, rules)
    ]
    handled = {key for key, runs in history.runs.items() if any(run.ended for run in runs)}
    return Verdict(
        violations=tuple(violations),
        intended=len(history.intents),
        acked=len(history.with_verdict("acked")),
        unknown=len(history.with_verdict("unknown")),
        failed=len(history.with_verdict("failed")),
        handled=len(handled),
        dead=len(state.dead),
        repeated=sum(sum(run.ended for run in runs) > 1 for runs in history.runs.values()),
    )
