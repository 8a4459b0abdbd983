"""What `doctor`, `why` and `check` have found, for people and for programs."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter

from penstock.cli.printing import chosen, print_rows
from penstock.cli.saying import warn
from penstock.cli.shown import line_of
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.diagnosis.finding import Finding

_COLUMNS = ("level", "subject", "rule", "what", "evidence", "remedy", "besides")
_INDENT = 7

Skip: TypeAlias = Annotated[list[str] | None, Parameter(negative=())]
"""For rules whose findings are known, and accepted."""


class WrongError(PenstockError):
    """Something was found that is wrong. All of it was printed."""


def print_findings(findings: "Sequence[Finding]", form: str | None, *, fine: str) -> None:
    """Print them, those that are wrong first, and raise if any is; `fine` is said, beside the answer, if none is."""
    found = sorted(findings, key=lambda one: one.level == "note")
    if chosen(form) == "table":
        _print_blocks(found)
    else:
        print_rows(map(_row, found), form, _COLUMNS)
    wrong = sum(one.level == "wrong" for one in found)
    if wrong:
        raise WrongError(f"{wrong} {'thing is' if wrong == 1 else 'things are'} wrong: each says what mends it")
    warn(fine)


def without(findings: "Iterable[Finding]", skip: Sequence[str] | None) -> "list[Finding]":
    """Those of rules that are not skipped."""
    return [one for one in findings if one.rule not in (skip or ())]


def _row(finding: "Finding") -> dict[str, Any]:
    facts = msgspec.structs.asdict(finding)
    return {name: list(facts[name]) if name == "evidence" else facts[name] for name in _COLUMNS}


def _print_blocks(findings: "Iterable[Finding]") -> None:
    """Sentences do not fit into columns: a block for each. A remedy is one line, as long as it is: for copying. So is
    what there is to know besides, which may name a command too."""
    from rich.padding import Padding
    from rich.text import Text

    from penstock.cli.screen import Screen

    console = Screen()
    for one in findings:
        is_wrong = one.level == "wrong"
        head = Text(f"{'WRONG' if is_wrong else 'note':<{_INDENT}}", style="bold red" if is_wrong else "yellow")
        console.print(
            head.append(f"{line_of(one.subject)}  ", style="bold").append(one.rule, style="dim"), soft_wrap=True
        )
        for line, indent in ((one.what, _INDENT), *((line, _INDENT + 2) for line in one.evidence)):
            console.print(Padding(Text(line_of(line), overflow="fold"), (0, 0, 0, indent), expand=False))
        console.print(Text(f"{'':{_INDENT}}-> {line_of(one.remedy)}", style="green"), soft_wrap=True)
        if one.besides:
            console.print(Text(f"{'':{_INDENT}}   {line_of(one.besides)}", style="dim"), soft_wrap=True)
