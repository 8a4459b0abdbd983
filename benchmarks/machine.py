"""What a process used, and what else the machine was doing meanwhile. Reads /proc, so it needs Linux."""

import os
import time
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """To the nanosecond, where `stat` would count in steps of 10 ms. Threads that have ended are not in it."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((thread / "schedstat").read_text().split()[0])
        except FileNotFoundError:  # it ended between the listing and the look
            continue
    return total / 1e9


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def busy_seconds() -> float:
    """CPU seconds of the whole machine since it started, without idle, I/O wait and what a hypervisor took."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _wait, irq, soft, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def wait_until_quiet(at_most: float = 2.0, cores: float = 0.3) -> float:
    """Wait for the machine to use fewer than `cores`; returns what it used when we stopped waiting."""
    deadline = time.monotonic() + at_most
    while True:
        busy, clock = busy_seconds(), time.monotonic()
        time.sleep(0.15)
        used = (busy_seconds() - busy) / (time.monotonic() - clock)
        if used < cores or time.monotonic() > deadline:
            return used
