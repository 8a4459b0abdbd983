"""Files for Spark to read, by their very names."""

import re
from pathlib import Path


def literal(path: Path) -> str:
    """As Spark takes it: signs that it would take for patterns are escaped. For reading only: a write takes them so."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path))
