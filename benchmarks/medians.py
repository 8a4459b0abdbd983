"""Several contestants, several rounds: everybody in each round, then medians, so that a bad minute hits all alike."""

import statistics
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

Row = dict[str, float]
Key = TypeVar("Key", bound=Hashable)


def interleaved(rounds: int, wanted: Sequence[Key], measure: Callable[[Key], Any]) -> dict[Key, list[Row]]:
    """One row per contestant and round; every other round goes backwards, so that nobody always follows the same."""
    found: dict[Key, list[Row]] = {key: [] for key in wanted}
    for number in range(rounds):
        for key in wanted[:: -1 if number % 2 else 1]:
            row = measure(key)
            found[key].append(row if isinstance(row, dict) else asdict(row))
            print(f"  round {number + 1} {getattr(key, 'name', key)}", file=sys.stderr, flush=True)
    return found


def median(rows: Sequence[Row], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def ratios(rows: Sequence[Row], reference: Sequence[Row], name: str) -> list[float]:
    """Round by round, so that both sides of a ratio saw the same minute; sorted."""
    return sorted(row[name] / other[name] for row, other in zip(rows, reference, strict=True))


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median, with the lowest and the highest."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f}..{high:.{digits}f})"
