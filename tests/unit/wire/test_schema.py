"""Declarations as types: defaults, equality, what a constructor takes, what a class costs."""

from types import ModuleType
from typing import Any

import pytest

from tailrace.wire.apis import admin, data, groups, quorum, security, stored_records, transactions
from tailrace.wire.apis.data import FetchRequest, FetchResponse, MetadataRequest, ProduceRequest
from tailrace.wire.schema import Message, Struct, array, int32, parse_versions, string, struct


class Sample(Message, api_key=7, versions="1-5", flexible="4+"):
    class Item(Struct):
        number: int = int32("1+", default=-1)

    name: str = string("1+")
    title: str | None = string("2+", nullable="3+", default=None)
    items: list[Item] = array(Item, "1+")
    maybe: list[int] | None = array(int32, "1+", nullable="1+", default=None)
    first: Item = struct(Item, "1+")


@pytest.mark.parametrize(
    ("text", "versions"), [("3", range(3, 4)), ("3-5", range(3, 6)), ("9+", range(9, 32768)), (None, range(0))]
)
def test_versions_are_written_as_kafka_writes_them(text: str | None, versions: range) -> None:
    assert parse_versions(text) == versions


def test_a_class_knows_its_facts() -> None:
    assert (Sample.api_key, Sample.versions, Sample.flexible) == (7, range(1, 6), range(4, 32768))
    assert [field.name for field in Sample.fields] == ["name", "title", "items", "maybe", "first"]


def test_defaults() -> None:
    sample = Sample()
    assert (sample.name, sample.title, sample.items, sample.maybe) == ("", None, [], None)
    assert sample.first == Sample.Item(number=-1)


def test_mutable_defaults_are_not_shared() -> None:
    one, other = Sample(), Sample()
    one.items.append(Sample.Item())
    one.first.number = 5
    assert other == Sample()


def test_null_can_be_said_where_the_default_is_an_empty_list() -> None:
    assert MetadataRequest().topics == []
    assert MetadataRequest(topics=None).topics is None


def test_equality_is_by_type_and_fields() -> None:
    assert Sample(name="a") == Sample(name="a")
    assert Sample(name="a") != Sample(name="b")
    assert FetchRequest.ForgottenTopic() != FetchRequest.FetchTopic()
    assert Sample() != "sample"


def test_instances_are_mutable_and_so_not_hashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Sample())


def test_a_misspelt_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="tittle"):
        Sample(tittle="x")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Sample().tittle = "x"  # type: ignore[attr-defined]


def test_repr_shows_what_is_not_default() -> None:
    partition = ProduceRequest.PartitionProduceData(index=3, records=b"12345")
    assert repr(partition) == "PartitionProduceData(index=3, records=<5 bytes>)"
    assert repr(Sample(items=[Sample.Item(number=4), Sample.Item()])) == "Sample(items=[Item(number=4), Item()])"


def test_a_struct_names_another() -> None:
    (topics,) = (field for field in FetchResponse.fields if field.name == "responses")
    assert topics.struct is FetchResponse.FetchableTopicResponse
    (partitions,) = (field for field in topics.struct.fields if field.name == "partitions")
    assert partitions.struct is FetchResponse.PartitionData


def test_a_name_that_no_struct_has_is_found_at_once() -> None:
    with pytest.raises(KeyError, match="Missing"):

        class Broken(Message, versions="0"):
            class Item(Struct):
                others: list[int] = array("Missing", "0+")


@pytest.mark.parametrize(
    "module", [data, admin, groups, transactions, security, quorum, stored_records], ids=lambda m: m.__name__
)
def test_annotations_and_names_agree(module: ModuleType) -> None:
    """A type checker cannot compare a struct's name with the annotation beside it."""
    structs = [struct for message in vars(module).values() for struct in nested_structs(message)]
    assert len(structs) > 10
    for cls in structs:
        for field in cls.fields:
            if field.struct is not None:
                annotation = cls.__annotations__[field.name].removesuffix(" | None").removeprefix("list[")
                assert annotation.removesuffix("]") in (field.struct.__name__, field.struct.__qualname__)


def nested_structs(message: Any) -> list[type[Struct]]:
    if not (isinstance(message, type) and issubclass(message, Message)):
        return []
    return [message, *(value for value in vars(message).values() if isinstance(value, type))]
