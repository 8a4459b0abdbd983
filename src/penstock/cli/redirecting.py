"""Where the programs that we start write what they have to say."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def stderr_to(file: Path) -> Iterator[None]:
    """Programs that are started meanwhile write their stderr there for as long as they live."""
    sys.stderr.flush()
    own = os.dup(2)
    with file.open("ab") as opened:
        os.dup2(opened.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
