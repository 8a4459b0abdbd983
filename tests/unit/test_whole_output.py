"""Stdout is written whole, whoever has a hand in it: handlers of signals, threads, another owner of the file."""

import json
import os
import signal
import subprocess
import sys

PROGRAM = """
import json, os, signal, sys, threading
from penstock.cli.whole_output import whole_output

{before}
with whole_output():
    {within}
    sys.stdout.flush()
"""
LONG = "sys.stdout.buffer.write(b'x' * 1_000_000 + bytes([10]))"


def printed(before: str, within: str, number: signal.Signals | None = None) -> list[str]:
    """The lines of a program, which is given that signal amid its first write."""
    program = PROGRAM.format(before=before, within=within)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        begun = os.read(process.stdout.fileno(), 1)
        if number is not None:
            process.send_signal(number)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    return (begun + out).decode().splitlines()


def test_what_a_handler_prints_comes_behind_what_it_interrupts() -> None:
    handler = "signal.signal(signal.SIGUSR1, lambda *_: print('handled'))"
    assert printed(handler, LONG, signal.SIGUSR1) == ["x" * 1_000_000, "handled"]


def test_threads_do_not_write_into_each_others_lines() -> None:
    threads = """
    lines = [(letter * 200_000 + chr(10)).encode() for letter in "abcd"]
    threads = [threading.Thread(target=sys.stdout.buffer.write, args=(line,)) for line in lines]
    for one in threads: one.start()
    for one in threads: one.join()
"""
    assert sorted(printed("", threads)) == [letter * 200_000 for letter in "abcd"]


def test_a_handler_of_somebodys_own_is_called_at_once_and_stays() -> None:
    handler = """
seen = []
def handle(number, frame):
    seen.append(signal.getsignal(number) is handle)
signal.signal(signal.SIGTERM, handle)
"""
    after = "print(json.dumps([seen, signal.getsignal(signal.SIGTERM) is handle]))"
    assert json.loads(printed(handler, f"{LONG}; {after}", signal.SIGTERM)[1]) == [[True], True]


def test_a_pipe_that_does_not_block_is_waited_for() -> None:
    assert printed("os.set_blocking(1, False)", LONG) == ["x" * 1_000_000]


def test_a_child_that_was_forked_while_a_thread_wrote_prints_what_it_has_to_say() -> None:
    """As handlers may do, with the processes of multiprocessing."""
    child = """
    writing = threading.Thread(target=sys.stdout.buffer.write, args=(b'x' * 1_000_000 + bytes([10]),))
    writing.start()
    while not sys.stdout.buffer._is_writing: pass
    reads, writes = os.pipe()
    if os.fork() == 0:
        os.dup2(writes, 1)
        print('from the child')
        sys.stdout.flush()
        os._exit(0)
    os.close(writes)
    said = os.read(reads, 100)
    writing.join()
    print(said.decode(), end='')
"""
    assert printed("", child) == ["x" * 1_000_000, "from the child"]
