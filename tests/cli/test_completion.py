"""`penstock completion`: shells complete commands and options."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine

EXTRAS = ("pyarrow", "duckdb", "pyspark", "pandas", "numpy", "starlette", "uvicorn", "jinja2", "prometheus_client")


def completed(script: Path, *words: str) -> set[str]:
    """What a real bash offers for the last of these words."""
    line = " ".join(f"'{word}'" for word in ("penstock", *words))
    asked = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _penstock"
    told = "printf '%s\\n' \"${COMPREPLY[@]}\""
    done = subprocess.run(["bash", "-c", f"{asked}; {told}"], capture_output=True, text=True, timeout=50, check=True)
    return set(done.stdout.split())


def test_bash_completes_commands_and_options(nowhere: CommandLine, tmp_path: Path) -> None:
    script = tmp_path / "penstock"
    script.write_text(nowhere("completion", "bash").out)
    assert {"dead", "job", "top", "bench", "completion"} <= completed(script, "")
    assert completed(script, "comp") == {"completion"}
    assert completed(script, "dead", "re") == {"replay"}
    assert {"--group", "--all", "--yes", "--url"} <= completed(script, "dead", "replay", "orders", "--")
    assert "worker" not in completed(script, "wo")


@pytest.mark.parametrize(
    ("shell", "begins", "has"),
    [
        ("zsh", "#compdef penstock", '_penstock ]]; then\n  _cyclopts_penstock "$@"\n'),
        ("fish", "#", "\ncomplete -c penstock -f\n"),
    ],
)
def test_other_shells_get_theirs(nowhere: CommandLine, shell: str, begins: str, has: str) -> None:
    out = nowhere("completion", shell).out
    assert out.startswith(begins)
    assert has in out
    assert all(word in out for word in ("dead", "replay", "bench"))


def test_a_shell_that_nobody_knows_is_refused(nowhere: CommandLine) -> None:
    assert "tcsh" in nowhere.refused("completion", "tcsh", code=2)


def test_the_plain_installation_is_enough() -> None:
    missing = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))"
    code = f"{missing}; from penstock.cli.main import main; main(['completion', 'bash'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "compact" in done.stdout
