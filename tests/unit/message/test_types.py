"""Typed bodies: by declared name, for every kind of record, and no exception of a user's type ever escapes."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, TypedDict

import msgspec
import pydantic
import pytest
from pydantic.dataclasses import dataclass as pydantic_dataclass

from penstock.errors import ConfigurationError, EncodeError, MalformedError
from penstock.message.catalog import Catalog, type_name
from penstock.message.message import Message
from penstock.message.wire import Wire


class Struct(msgspec.Struct):
    total: int
    at: datetime | None = None
    raw: bytes = b""


@dataclass
class Data:
    total: int
    tags: dict[int, str] = field(default_factory=dict)


class Model(pydantic.BaseModel):
    total: int = pydantic.Field(alias="sum")
    at: datetime | None = None

    @pydantic.field_validator("total")
    @classmethod
    def positive(cls, value: int) -> int:
        if value < 0:
            raise ValueError("negative")
        return value


@pydantic_dataclass
class ModelData:
    total: int


class Typed(TypedDict):
    total: int


class Declared(msgspec.Struct):
    message_type: ClassVar[str] = "shop.order/v2"
    total: int


NOW = datetime(2026, 1, 1, tzinfo=UTC)
BODIES = [Struct(1, NOW, b"\xff"), Data(2, {1: "x"}), Model(sum=3, at=NOW), ModelData(4), Declared(5)]


@pytest.mark.parametrize("dialect", ["native", "cloudevents", "job", "enveloped", "flat"])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_a_record_comes_back_as_itself(body: Any, dialect: str) -> None:
    wire = Wire(dialect, types=[Struct, Data, Model, ModelData, Declared])
    read = wire.unpack("t", "1-1", wire.pack(Message(body), "t"))
    assert read.body == body
    assert type(read.body) is type(body)
    assert read.type == type_name(type(body))


def test_a_type_is_known_by_its_declared_name_else_by_its_class() -> None:
    assert type_name(Declared) == "shop.order/v2"
    assert [type_name(cls) for cls in (Struct, Data, Model, ModelData, Typed)] == [
        "Struct",
        "Data",
        "Model",
        "ModelData",
        "Typed",
    ]
    assert [type_name(cls) for cls in (dict, list, str, int, float, bool, type(None), bytes, tuple)] == [None] * 9


def test_a_typed_dict_is_read_under_the_name_the_message_gives() -> None:
    wire = Wire(types=[Typed])
    body: Typed = {"total": 1}
    assert wire.unpack("t", "1-1", wire.pack(Message(body, type="Typed"))).body == {"total": 1}
    with pytest.raises(MalformedError, match="total"):
        wire.unpack("t", "1-1", [b"payload", b"{}", b"type", b"Typed"])


def test_an_unknown_type_is_plain_json() -> None:
    read = Wire().unpack("t", "1-1", Wire().pack(Message(Data(1))))
    assert (read.type, read.body) == ("Data", {"total": 1, "tags": {}})


def test_a_field_the_reader_does_not_know_is_no_obstacle() -> None:
    read = Wire(types=[Data]).unpack("t", "1-1", [b"payload", b'{"total": 1, "new": [{}]}', b"type", b"Data"])
    assert read.body == Data(1)


@pytest.mark.parametrize("name", ["Struct", "Data", "Model", "ModelData", "Typed"])
@pytest.mark.parametrize(
    "payload",
    [b"{}", b'{"total":"x"}', b"[]", b"null", b"1", b'{"total":1,"total":1}', b'{"sum":NaN}', b'{"sum":1,"sum":2}'],
)
def test_a_body_that_does_not_fit_its_type_is_malformed(name: str, payload: bytes) -> None:
    wire = Wire(types=[Struct, Data, Model, ModelData, Typed])
    with pytest.raises(MalformedError) as caught:
        wire.unpack("t", "1-1", [b"payload", payload, b"type", name.encode()])
    assert caught.value.raw == (b"payload", payload, b"type", name.encode())


def test_a_validator_of_the_user_makes_it_malformed() -> None:
    with pytest.raises(MalformedError, match="negative"):
        Wire(types=[Model]).unpack("t", "1-1", [b"payload", b'{"sum":-1}', b"type", b"Model"])


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")


@pytest.mark.parametrize("error", [ValueError("a"), KeyError("a"), RuntimeError("a"), RecursionError(), Unprintable()])
def test_whatever_a_users_type_raises_is_malformed(error: Exception) -> None:
    @dataclass
    class Fussy:
        a: int

        def __post_init__(self) -> None:
            raise error

    class FussyStruct(msgspec.Struct):
        a: int

        def __post_init__(self) -> None:
            raise error

    class FussyModel(pydantic.BaseModel):
        a: int

        def model_post_init(self, context: Any) -> None:
            raise error

    wire = Wire(types=[Fussy, FussyStruct, FussyModel])
    for name in (b"Fussy", b"FussyStruct", b"FussyModel"):
        with pytest.raises(MalformedError):
            wire.unpack("t", "1-1", [b"payload", b'{"a":1}', b"type", name])


def test_a_publisher_learns_that_a_body_breaks_its_own_type() -> None:
    with pytest.raises(EncodeError, match="Expected `int`"):
        Wire(types=[Struct]).pack(Message(Struct("x")))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body",
    [
        Struct(float("nan")),  # type: ignore[arg-type]
        Data(1, {1: float("inf")}),  # type: ignore[dict-item]
        Model.model_construct(total=float("nan")),
        msgspec.Raw(b"{"),
        [msgspec.Raw(b'{"a":1,"a":2}')],
    ],
)
def test_a_record_that_json_cannot_say_is_refused(body: Any) -> None:
    with pytest.raises(EncodeError):
        Wire().pack(Message(body))


def test_two_types_cannot_share_a_name() -> None:
    catalog = Catalog([Data])
    catalog.add(Data)
    with pytest.raises(ConfigurationError, match="two types claim the wire name 'Data'"):
        catalog.add(Struct, name="Data")
    assert catalog.find("Data") is Data


def test_a_type_that_json_cannot_fill_or_name_is_refused_when_given() -> None:
    with pytest.raises(ConfigurationError, match="cannot be read from JSON"):
        Wire(types={"either, and no tag to tell which": Struct | Declared})
    with pytest.raises(ConfigurationError, match="no name of its own"):
        Wire(types=[dict])
    assert Wire(types={"numbers": list[int]}).types.find("numbers") == list[int]
