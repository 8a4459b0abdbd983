"""Makes docs/images/demo.svg of a real run of the demo: what one sees in the middle of it, and at the end."""

import asyncio
import io
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from penstock.backend.embedded import EmbeddedServer
from penstock.cli.demo.script import Script
from penstock.cli.demo.stage import Stage
from penstock.cli.demo.view import Showing

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "demo.svg"
COLUMNS = 88
BACKGROUND, FOREGROUND = (13, 17, 23), (201, 209, 217)
RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN = (
    (248, 81, 73),
    (63, 185, 80),
    (210, 153, 34),
    (88, 166, 255),
    (188, 140, 255),
    (57, 197, 207),
)
THEME = TerminalTheme(BACKGROUND, FOREGROUND, [(48, 54, 61), RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN, FOREGROUND])


async def record(console: Console) -> None:
    """Play the whole demo. Raises if its books do not balance: such a run is no picture of ours."""
    with EmbeddedServer.start(ephemeral=True) as server, tempfile.TemporaryDirectory() as place:
        stage = Stage(Script(), server.url, Path(place), console, Showing.NOT)
        playing = asyncio.create_task(stage.perform())
        await stage.books.wait(lambda: len(stage.books.published) > 0.7 * stage.books.wanted, patience=60)
        console.print(stage.view.picture())
        await playing


def drawn(console: Console) -> str:
    """As SVG, with the fonts of whoever looks at it: rich would have them fetched from elsewhere."""
    svg = console.export_svg(title="make demo", theme=THEME)
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL).replace("Fira Code,", "")
    # Without it bars have gaps in some fonts.
    svg = svg.replace(" textLength=", ' lengthAdjust="spacingAndGlyphs" textLength=')
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


if __name__ == "__main__":
    recorder = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    asyncio.run(record(recorder))
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(drawn(recorder), encoding="utf-8")
    print(f"{PICTURE.name}: {PICTURE.stat().st_size:,} bytes")
