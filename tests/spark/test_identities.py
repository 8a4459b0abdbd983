"""Ids as the server notes them: short, and no two alike."""

from uuid import UUID

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from penstock.spark.sink.identities import as_noted, uuid_bytes
from tests.spark.sinking import Writing
from tests.support.servers import Server

A = "01890a5d-ac96-774b-bcce-b302099a8057"
B = str(UUID(bytes=b"sixteen letters."))
UUIDS = st.uuids().map(lambda uuid: str(uuid).encode())
# What might be taken for a UUID, or for the bytes of one.
ALIKE = UUIDS | UUIDS.map(bytes.upper) | st.uuids().map(lambda uuid: uuid.bytes) | st.binary(max_size=40)


def column(ids: list[bytes]) -> pa.Array:
    return pa.array(ids, pa.binary())


@settings(deadline=None)
@given(st.lists(UUIDS, min_size=1, max_size=5), st.integers(0, 2))
def test_uuids_are_their_bytes_wherever_the_column_begins(ids: list[bytes], skipped: int) -> None:
    found = uuid_bytes(column([*([b"no id"] * skipped), *ids]).slice(skipped))

    assert found is not None
    assert [each.tobytes() for each in found] == [UUID(id.decode()).bytes for id in ids]


@pytest.mark.parametrize("other", [A.upper(), A.replace("-", "/"), A[:-1], A + "0", A[:-1] + "g", A.replace("-", "")])
def test_any_other_spelling_is_no_uuid(other: str) -> None:
    assert uuid_bytes(column([A.encode()])) is not None
    assert uuid_bytes(column([A.encode(), other.encode()])) is None


@settings(deadline=None)
@given(st.lists(ALIKE, min_size=1, max_size=8))
def test_an_id_is_noted_the_same_in_any_company_and_unlike_any_other(ids: list[bytes]) -> None:
    together = as_noted(column(ids)).to_pylist()

    assert together == [as_noted(column([id])).to_pylist()[0] for id in ids]
    assert len(set(together)) == len(set(ids))
    assert all(int.from_bytes(each[:4], "little") == len(each) - 4 for each in together)


def test_ids_that_are_much_alike_are_messages_of_their_own(server: Server, topic: str) -> None:
    ids = [A, A.upper(), B, UUID(B).bytes.decode(), ""]
    rows = pa.record_batch({"id": pa.array(ids), "n": pa.array(range(len(ids)))})
    one_by_one = [rows.slice(number, 1) for number in range(len(ids))]
    writing = Writing(server, topic, "batch", layout="flat")

    writing.write_and_die(*one_by_one[:3])
    writing.commit(writing.write(*one_by_one))

    with server.client() as client:
        assert [entry[b"id"].decode() for _, entry in client.xrange(topic)] == ids
