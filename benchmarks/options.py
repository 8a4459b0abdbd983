"""What a run is told on the command line."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.ground import binaries

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Options:
    rounds: int = 5

    scale: float = 1.0
    """Multiplies every size: a trial run does not need a million messages."""

    server: str = ""
    """One server only; empty: all there are."""

    peers: bool = True
    """Other libraries run beside us, if they are installed."""

    results: Path = RESULTS

    def servers(self) -> dict[str, str]:
        return binaries(self.server)

    def scaled(self, size: int, least: int = 1) -> int:
        """`size` times the scale, but no smaller than `least` unless it was already."""
        return max(round(size * self.scale), min(size, least))
