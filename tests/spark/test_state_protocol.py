"""The messages in which PySpark's workers talk about state, without protobuf: byte for byte what protobuf writes."""

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.spark.pipelines import state_protocol


@pytest.fixture
def words() -> Any:
    """Our own classes, whether protobuf is installed or not."""
    state_protocol.provide()
    found = import_module("pyspark.sql.streaming.proto.StateMessage_pb2").DESCRIPTOR
    classes, values = state_protocol.messages(found if isinstance(found, bytes) else found.serialized_pb)
    return SimpleNamespace(**classes, **values)


def timer(words: Any) -> Any:
    call = words.StatefulProcessorCall(
        timerStateCall=words.TimerStateCallCommand(register=words.RegisterTimer(expiryTimestampMs=1_794_783_152_523))
    )
    return words.StateRequest(version=0, statefulProcessorCall=call)


def value(words: Any) -> Any:
    call = words.ValueStateCall(stateName="é", valueStateUpdate=words.ValueStateUpdate(value=bytes(range(256))))
    return words.StateRequest(stateVariableRequest=words.StateVariableRequest(valueStateCall=call))


def empty(words: Any) -> Any:
    call = words.ValueStateCall(stateName="s", exists=words.Exists())
    return words.StateRequest(stateVariableRequest=words.StateVariableRequest(valueStateCall=call))


def command(words: Any) -> Any:
    made = words.StateCallCommand()
    made.stateName, made.schema = "s", "{}"
    made.ttl.durationMs = 5
    return words.StatefulProcessorCall(getValueState=made)


def timers(words: Any) -> Any:
    found = [words.TimerInfo(key=b"k", timestampMs=ms) for ms in (-1, 300)]
    return words.StateResponseWithTimer(statusCode=2, errorMessage="no", timer=found, requireNextFetch=True)


def test_requests_are_written_as_protobuf_says(words: Any) -> None:
    key = words.ImplicitGroupingKeyRequest(setImplicitKey=words.SetImplicitKey(key=b"k" * 200))
    # Field 4, of 206 bytes: field 1, of 203: field 1, of 200, the key.
    expected = b"\x22\xce\x01\x0a\xcb\x01\x0a\xc8\x01" + b"k" * 200
    assert words.StateRequest(implicitGroupingKeyRequest=key).SerializeToString() == expected
    assert words.RegisterTimer(expiryTimestampMs=300).SerializeToString() == b"\x08\xac\x02"
    # What says nothing but that it is there.
    assert words.ValueStateCall(stateName="s", exists=words.Exists()).SerializeToString() == b"\x0a\x01s\x12\x00"
    assert (words.PRE_INIT, words.CREATED, words.CLOSED) == (0, 1, 5)


def test_replies_are_read_with_zeros_for_what_is_not_in_them(words: Any) -> None:
    reply = words.StateResponseWithTimer()
    reply.ParseFromString(b"\x1a\x0e\x0a\x01k\x10" + b"\xff" * 9 + b"\x01" + b"\x20\x01")
    (found,) = reply.timer
    assert (found.key, found.timestampMs, reply.requireNextFetch) == (b"k", -1, True)
    assert (reply.statusCode, reply.errorMessage) == (0, "")


@pytest.mark.skipif(find_spec("google") is None, reason="there is no protobuf to compare with")
@pytest.mark.parametrize("make", [timer, value, empty, command, timers])
def test_protobuf_itself_writes_and_reads_the_same(words: Any, make: Any) -> None:
    real = import_module("pyspark.sql.streaming.proto.StateMessage_pb2")
    ours, theirs = make(words), make(real)
    assert ours.SerializeToString() == theirs.SerializeToString()
    again = type(ours)()
    again.ParseFromString(theirs.SerializeToString())
    assert again.SerializeToString() == theirs.SerializeToString()


def test_without_protobuf_nobody_takes_it_for_that() -> None:
    code = (
        "import sys; sys.modules['google'] = None;"
        "from penstock.spark.pipelines import state_protocol; state_protocol.provide();"
        "import pyspark.sql.streaming.proto.StateMessage_pb2 as words;"
        "print(words.CREATED, issubclass(words.StateRequest, state_protocol.Message),"
        " [name for name in sys.modules if name.startswith('google.')], sys.modules['google'])"
    )
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert done.stdout == "1 True [] None\n"
