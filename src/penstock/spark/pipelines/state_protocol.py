"""What PySpark's `transformWithState` needs of protobuf, where that package is not installed.

A Python worker of Spark talks to the JVM about state in messages that PySpark describes in `StateMessage_pb2`, by a
descriptor in protobuf's own format. This reads that descriptor, and makes classes of the messages that can be written
and read: with the few kinds of fields that are in it, and no more. See docs/decisions/0018-alerts-without-protobuf.md.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ClassVar

_MODULE = "pyspark.sql.streaming.proto.StateMessage_pb2"
_VARINT, _BYTES = 0, 2
_TEXT_TYPE, _MESSAGE_TYPE, _BOOL_TYPE, _BYTES_TYPE = 9, 11, 8, 12
_REPEATED = 3
_CHOICE = 9  # the number of what says that a field is one of several, or may be left out
_NEGATIVE, _MODULUS = 1 << 63, 1 << 64


def provide() -> None:
    """Have PySpark find its messages, whether protobuf is installed or not."""
    if _MODULE in sys.modules or _is_installed():
        return
    stand_ins = _stand_ins()
    before = {name: sys.modules[name] for name in stand_ins if name in sys.modules}
    sys.modules.update(stand_ins)
    try:
        import_module(_MODULE)
    finally:
        for name in stand_ins:  # nobody else shall take them for the real ones
            del sys.modules[name]
        sys.modules.update(before)


def _is_installed() -> bool:
    try:
        # Not only the package: a jar on the path of Spark's workers has directories of these names.
        return find_spec("google.protobuf.descriptor") is not None
    except ImportError:
        return False


@dataclass(frozen=True)
class Field:
    """One field of a message, as the descriptor has it."""

    name: str
    number: int
    kind: int
    is_repeated: bool
    of: str
    """The name of its message type."""
    tells_zero: bool
    """Whether a zero that was given is written: it is not the same as nothing."""


class Message:
    """One message: fields are attributes, and those that were not given have their zero."""

    fields: ClassVar[tuple[Field, ...]]
    known: ClassVar[dict[str, type["Message"]]]

    def __init__(self, **values: Any) -> None:
        plain = (field for field in self.fields if field.kind != _MESSAGE_TYPE or field.is_repeated)
        self.__dict__.update({field.name: _zero(field) for field in plain})
        self.present: set[str] = set()
        for name, value in values.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name != "present":
            self.present.add(name)

    def __getattr__(self, name: str) -> Any:
        """A message inside, which is there as soon as something is said of it."""
        for field in self.fields:
            if field.name == name and field.kind == _MESSAGE_TYPE:
                setattr(self, name, self.known[field.of]())
                return self.__dict__[name]
        raise AttributeError(name)

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        given = ((field, self.__dict__[field.name]) for field in self.fields if field.name in self.present)
        return b"".join(_written(field, value) for field, value in given if value or field.tells_zero)

    def ParseFromString(self, raw: bytes) -> None:  # noqa: N802 - protobuf's name
        by_number = {field.number: field for field in self.fields}
        for number, found in _items(raw):
            if (field := by_number.get(number)) is None:
                continue
            value = self._read(field, found)
            setattr(self, field.name, [*getattr(self, field.name), value] if field.is_repeated else value)

    def _read(self, field: Field, found: Any) -> Any:
        if field.kind == _MESSAGE_TYPE:
            inner = self.known[field.of]()
            inner.ParseFromString(found)
            return inner
        if field.kind == _TEXT_TYPE:
            return found.decode()
        if field.kind == _BOOL_TYPE:
            return bool(found)
        if isinstance(found, int):
            return found - _MODULUS if found >= _NEGATIVE else found
        return found


def _zero(field: Field) -> Any:
    if field.is_repeated:
        return []
    return {_TEXT_TYPE: "", _BYTES_TYPE: b"", _BOOL_TYPE: False}.get(field.kind, 0)


def _written(field: Field, value: Any) -> bytes:
    if field.is_repeated:
        return b"".join(_one(field, each) for each in value)
    return _one(field, value)


def _one(field: Field, value: Any) -> bytes:
    if isinstance(value, Message):
        value = value.SerializeToString()
    elif isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return _number(field.number << 3 | _BYTES) + _number(len(value)) + value
    return _number(field.number << 3 | _VARINT) + _number(int(value) % _MODULUS)


def _number(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _items(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers of fields and what is in them: whole numbers, or bytes."""
    at = 0
    while at < len(raw):
        tag, at = _number_at(raw, at)
        value, at = _number_at(raw, at)
        if tag & 7 == _BYTES:
            yield tag >> 3, raw[at : at + value]
            at += value
        elif tag & 7 == _VARINT:
            yield tag >> 3, value
        else:
            raise ValueError(f"{_MODULE} has fields of a kind that Penstock cannot read: install protobuf")


def _number_at(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def messages(descriptor: bytes) -> tuple[dict[str, type[Message]], dict[str, int]]:
    """The classes of a file's messages, and the values of its enumerations, by their names."""
    classes: dict[str, type[Message]] = {}
    values: dict[str, int] = {}
    for number, raw in _items(descriptor):
        if number == 4:  # a message
            name, fields = _message(raw)
            classes[name] = type(name, (Message,), {"fields": fields, "known": classes})
        elif number == 5:  # an enumeration
            values.update(_enumerated(raw))
    return classes, values


def _message(raw: bytes) -> tuple[str, tuple[Field, ...]]:
    name, fields = "", []
    for number, found in _items(raw):
        if number == 1:
            name = found.decode()
        elif number == 2:
            facts = dict(_items(found))
            of = facts.get(6, b"").decode().rpartition(".")[2]
            tells_zero = facts[5] == _MESSAGE_TYPE or _CHOICE in facts
            fields.append(Field(facts[1].decode(), facts[3], facts[5], facts.get(4) == _REPEATED, of, tells_zero))
    return name, tuple(sorted(fields, key=lambda field: field.number))


def _enumerated(raw: bytes) -> Iterator[tuple[str, int]]:
    for number, found in _items(raw):
        if number == 2:
            facts = dict(_items(found))
            yield facts[1].decode(), facts.get(2, 0)


def _stand_ins() -> dict[str, ModuleType]:
    """What the generated module imports and calls, in the one way in which it does."""

    def build(descriptor: bytes, _: str, target: dict[str, Any]) -> None:
        for found in messages(descriptor):
            target.update(found)

    pool: Any = type("Pool", (), {"AddSerializedFile": staticmethod(lambda raw: raw)})
    contents: dict[str, dict[str, Any]] = {
        "google": {},
        "google.protobuf": {},
        "google.protobuf.internal": {},
        "google.protobuf.descriptor": {"_USE_C_DESCRIPTORS": True},
        "google.protobuf.descriptor_pool": {"Default": pool},
        "google.protobuf.runtime_version": {
            "Domain": type("Domain", (), {"PUBLIC": None}),
            "ValidateProtobufRuntimeVersion": lambda *_: None,
        },
        "google.protobuf.symbol_database": {"Default": lambda: None},
        "google.protobuf.internal.builder": {
            "BuildMessageAndEnumDescriptors": lambda *_: None,
            "BuildTopDescriptorsAndMessages": build,
        },
    }
    modules = {name: ModuleType(name) for name in contents}
    for name, values in contents.items():
        vars(modules[name]).update(values)
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(modules[parent], own, modules[name])
    return modules
