"""Identity: strict spelling, ids that only grow, and no id twice, also after a fork."""

import os
import subprocess
import sys
import threading
import uuid
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.message.ids import canonical, entry_uuid, foreign_id, new_id

GOOD = "0198c0de-5a5a-7abc-8def-0123456789ab"


@pytest.mark.parametrize("form", [GOOD, GOOD.encode(), GOOD.upper(), GOOD.upper().encode(), GOOD.title()])
def test_only_the_case_of_a_uuid_is_forgiven(form: str | bytes) -> None:
    assert canonical(form) == GOOD


@pytest.mark.parametrize(
    "form",
    [
        "",
        "123",
        GOOD.replace("-", ""),
        "{" + GOOD + "}",
        "urn:uuid:" + GOOD,
        "+" + GOOD[1:],
        " " + GOOD[1:],
        GOOD + "\n",
        GOOD[:-1] + "g",
        GOOD[:-1] + "\N{FULLWIDTH DIGIT ONE}",
        GOOD[:-1] + "\N{ARABIC-INDIC DIGIT ONE}",
        GOOD.replace("-", "_"),
        GOOD + "é",
        GOOD[:7] + "-" + GOOD[7] + GOOD[9:],
        "h" * 8 + GOOD[8:],
        "\ud800" + GOOD[1:],
        b"\xff" + GOOD[1:].encode(),
    ],
)
def test_nothing_else_is_a_uuid(form: str | bytes) -> None:
    assert canonical(form) is None


@given(st.text(alphabet="0123456789abcdefABCDEF-{}:+ _gh１", min_size=30, max_size=40) | st.uuids().map(str))
def test_what_is_canonical_is_exactly_what_uuid_prints(text: str) -> None:
    found = canonical(text)
    if found is not None:
        assert found == str(uuid.UUID(text)) == text.lower()
    else:
        assert len(text) != 36 or text.lower() != str_or_none(text)


def str_or_none(text: str) -> str | None:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return None


def test_new_ids_are_v7_and_only_grow() -> None:
    ids = [new_id() for _ in range(20_000)]
    assert all(earlier < later for earlier, later in pairwise(ids))
    assert uuid.UUID(ids[0]).version == 7
    assert canonical(ids[0]) == ids[0]


def test_new_ids_of_all_threads_grow_and_differ() -> None:
    found: list[list[str]] = []

    def make() -> None:
        found.append([new_id() for _ in range(10_000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(ids == sorted(ids) for ids in found)
    assert len({one for ids in found for one in ids}) == 40_000


FORK = """
import os
register = os.register_at_fork
os.register_at_fork = lambda **handlers: None   # the library's own guard is out of the way: ours must do
import uuid_utils
os.register_at_fork = register
from penstock.message.ids import new_id

new_id()
readers = []
for _ in range(8):
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.write(write_end, new_id().encode())
        os._exit(0)
    os.close(write_end)
    readers.append(read_end)
for reader in readers:
    with os.fdopen(reader) as lines:
        print(lines.read())
"""


def test_forked_children_never_repeat_each_other() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", FORK], env=environment, capture_output=True, text=True, check=True, timeout=50
    )
    ids = done.stdout.split()
    assert len(set(ids)) == 8
    # The clock may tell children apart today; what must differ is the part that no clock decides.
    assert len({one[14:] for one in ids}) == 8


def test_a_foreign_id_maps_to_one_uuid_per_topic_for_ever() -> None:
    assert foreign_id("chat:DevAgent", b"123") == "a4e3f831-ba4a-5183-93a5-19184e368d85"
    assert foreign_id("chat:DevAgent", b"123") != foreign_id("chat:other", b"123")
    assert foreign_id("chat:DevAgent", b"123") != foreign_id("chat:DevAgent", b"124")
    assert uuid.UUID(foreign_id("t", b"\xff\x00")).version == 5


def test_an_entry_without_an_id_is_known_by_its_place() -> None:
    assert entry_uuid("orders", "1712345678901-0") == "c6d81054-8740-591f-a596-322ca617e520"
    assert entry_uuid("orders", "5-1") != entry_uuid("orders", "5-2")
    assert entry_uuid("t", "5-1") != foreign_id("t", b"5-1")
    assert canonical(entry_uuid("\udcff", "5-1")) is not None
