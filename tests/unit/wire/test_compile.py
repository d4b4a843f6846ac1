"""The codec's rules, one by one, on small messages made for the purpose: what Kafka does with each is in the golden
vectors."""

import pytest

from tailrace.model.errors import ProtocolError
from tailrace.model.ports import FileSlice
from tailrace.sim.disk import SimDisk
from tailrace.wire.apis.data import FetchResponse, ProduceRequest
from tailrace.wire.compile import cut, decode, decode_from, decoder, encode, encoder
from tailrace.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    int16,
    int32,
    int64,
    record_batches,
    string,
    struct,
    uuid,
)


def parts_of(message: Message, version: int, head: bytes = b"") -> list[bytes | bytearray | memoryview | FileSlice]:
    """As a frame is put together, around what stands before the message."""
    output, detached = bytearray(head), []
    encoder(type(message), version)(message, output, detached)
    return cut(output, detached)


class Sample(Message, versions="0-2", flexible="2+"):
    class Item(Struct):
        number: int = int32("0+")
        label: str = string("1+", default="none")

    count: int = int16("0+")
    name: str = string("0+")
    items: list[Item] = array(Item, "0+")


class Tagged(Message, versions="0-1", flexible="0+"):
    class Place(Struct):
        node: int = int32("0+", default=-1)
        hosts: list[str] = array(string, "0+")

    always: int = int16("0+")
    number: int = int64("0+", default=-1, tag=0)
    place: Place = struct(Place, "0+", tag=1)
    perhaps: Place | None = struct(Place, "0+", nullable="0+", default=None, tag=2)
    ids: list[int] | None = array(int32, "0+", nullable="0+", tag=5)
    late: str = string("1+", tag=300)


class Nullable(Message, versions="0-2", flexible="2+"):
    class Part(Struct):
        flag: bool = boolean("0+")

    text: str | None = string("0+", nullable="1+")
    data: bytes | None = bytes_("0+", nullable="1+")
    numbers: list[int] | None = array(int32, "0+", nullable="1+")
    texts: list[str] | None = array(string, "0+", nullable="1+")
    part: Part | None = struct(Part, "1+", nullable="1+", default=None)


class Carrier(Message, versions="0-1", flexible="1+"):
    before: int = int16("0+")
    records: object = record_batches("0+", nullable="0+")
    after: int = int16("0+", default=7)


def test_old_and_compact_forms() -> None:
    message = Sample(count=5, name="hé", items=[Sample.Item(number=1, label="x")])
    assert encode(message, 0).hex(" ", 1) == "00 05 00 03 68 c3 a9 00 00 00 01 00 00 00 01"
    assert encode(message, 1).hex(" ", 1) == "00 05 00 03 68 c3 a9 00 00 00 01 00 00 00 01 00 01 78"
    assert encode(message, 2).hex(" ", 1) == "00 05 04 68 c3 a9 02 00 00 00 01 02 78 00 00"


def test_fields_that_a_version_lacks_get_their_defaults() -> None:
    message = decode(Sample, 0, encode(Sample(items=[Sample.Item(number=1, label="x")]), 0))
    assert message == Sample(items=[Sample.Item(number=1, label="none")])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_and_any_position(kind: type) -> None:
    message = Sample(count=1, name="n", items=[Sample.Item(number=2, label="two")])
    data = encode(message, 2)
    assert decode_from(Sample, 2, kind(b"xyz" + data + b"more"), 3) == (message, 3 + len(data))


def test_compiled_functions_are_kept() -> None:
    assert decoder(Sample, 1) is decoder(Sample, 1)
    assert encoder(Sample, 1) is encoder(Sample, 1)
    assert encoder(Sample, 1) is not encoder(Sample, 2)


def test_versions_that_do_not_exist() -> None:
    with pytest.raises(ProtocolError, match="Sample has no version 3: 0-2 exist"):
        decode(Sample, 3, b"")
    with pytest.raises(ValueError, match="Sample has no version -1"):
        encode(Sample(), -1)


class TestTaggedFields:
    def test_defaults_are_not_written(self) -> None:
        assert encode(Tagged(always=1, ids=[]), 1).hex(" ") == "00 01 00"

    def test_what_differs_is_written_by_tag(self) -> None:
        message = Tagged(number=2, place=Tagged.Place(node=3), late="é")
        assert encode(message, 1).hex(" ", 1) == (
            "00 00 03"
            " 00 08 00 00 00 00 00 00 00 02"  # tag 0, 8 bytes
            " 01 06 00 00 00 03 01 00"  # tag 1, 6 bytes: node, no hosts, no tags
            " ac 02 03 03 c3 a9"  # tag 300, 3 bytes: a compact string
        )
        assert decode(Tagged, 1, encode(message, 1)) == message

    def test_a_tag_is_left_off_where_its_version_is_not_there(self) -> None:
        assert encode(Tagged(late="late"), 0) == encode(Tagged(), 0)

    def test_a_struct_counts_as_changed_if_any_field_is(self) -> None:
        message = Tagged(place=Tagged.Place(hosts=["a"]))
        assert decode(Tagged, 0, encode(message, 0)) == message

    def test_null_where_null_is_not_the_default(self) -> None:
        assert encode(Tagged(ids=None), 0).hex(" ") == "00 00 01 05 01 00"
        assert decode(Tagged, 0, encode(Tagged(ids=None), 0)).ids is None

    def test_a_struct_where_null_is_the_default(self) -> None:
        message = Tagged(perhaps=Tagged.Place(node=1))
        assert encode(message, 0).hex(" ") == "00 00 01 02 07 01 00 00 00 01 01 00"
        assert decode(Tagged, 0, encode(message, 0)) == message
        assert decode(Tagged, 0, bytes.fromhex("0000 01 02 01 00")).perhaps is None

    def test_unknown_tags_are_skipped_and_forgotten(self) -> None:
        data = bytes.fromhex("0001 02 07 03 aabbcc ac02 00")
        assert decode_from(Tagged, 0, data, 0) == (Tagged(always=1), len(data))
        # Also where no tag is known at all.
        assert decode(Sample, 2, bytes.fromhex("0005 01 01 02 07 03 aabbcc 09 00")) == Sample(count=5)

    @pytest.mark.parametrize(
        "section",
        [
            "01 00 07 0000000000000002",  # an int64 of 7 bytes
            "01 00 09 000000000000000200",  # one of 9
            "01 01 05 00000003 01",  # a struct without its tag section
            "01 07 04 aabbcc",  # an unknown tag beyond the end
            "02 07 00",  # fewer tags than told
            "01 00 ffffffff0f",
            "ffffffff0f",
            "01 ffffffffff01 00",  # a tag of more than five bytes
        ],
    )
    def test_sizes_that_lie(self, section: str) -> None:
        with pytest.raises(ProtocolError):
            decode(Tagged, 0, bytes.fromhex("0001" + section))


class TestNull:
    def test_old_and_compact_forms(self) -> None:
        message = Nullable(text=None, data=None, numbers=None, texts=None)
        assert encode(message, 1).hex(" ") == "ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff"
        assert encode(message, 2).hex(" ") == "00 00 00 00 ff 00"
        assert decode(Nullable, 1, encode(message, 1)) == message
        assert decode(Nullable, 2, encode(message, 2)) == message

    @pytest.mark.parametrize("field", ["text", "data", "numbers", "texts"])
    def test_where_a_version_does_not_allow_it_it_is_our_bug(self, field: str) -> None:
        with pytest.raises(ValueError, match=rf"Nullable\.{field} is None and not nullable in version 0"):
            encode(Nullable(**{field: None}), 0)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "data", ["ffff", "0000 ffffffff", "0000 00000000 ffffffff", "00000000000000000000ffffffff"]
    )
    def test_where_a_version_does_not_allow_it_it_is_refused(self, data: str) -> None:
        with pytest.raises(ProtocolError):
            decode(Nullable, 0, bytes.fromhex(data) + bytes(20))

    def test_a_struct_that_is_there(self) -> None:
        message = Nullable(part=Nullable.Part(flag=True))
        assert encode(message, 2).hex(" ") == "01 01 01 01 01 01 00 00"
        assert decode(Nullable, 2, encode(message, 2)) == message


class TestOurBugs:
    def test_a_number_that_does_not_fit(self) -> None:
        with pytest.raises(ValueError, match=r"Sample\.count is 40000, which does not fit int16 in version 1"):
            encode(Sample(count=40000), 1)

    def test_the_path_leads_to_the_item(self) -> None:
        message = Sample(items=[Sample.Item(), Sample.Item(label=None)])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"Sample\.items\[1\]\.label is None"):
            encode(message, 1)

    @pytest.mark.parametrize("version", [0, 2])
    def test_a_string_beyond_what_kafka_reads(self, version: int) -> None:
        encode(Sample(name="x" * 32767), version)
        with pytest.raises(ValueError, match=r"Sample\.name is no string of at most 32767 bytes"):
            encode(Sample(name="x" * 32768), version)

    def test_a_value_of_another_type(self) -> None:
        with pytest.raises(ValueError, match=r"Sample\.name is no string"):
            encode(Sample(name=b"bytes"), 1)  # type: ignore[arg-type]


class TestTrustNothing:
    @pytest.mark.parametrize(
        ("version", "data"),
        [
            (0, ""),
            (0, "0005"),
            (0, "0005 7fff 61"),  # a string of 32 KB
            (0, "0005 8000"),  # a negative length
            (0, "0005 0001 61 7fffffff 00000001"),  # two billion items
            (0, "0005 0001 61 ffffffff"),  # minus one
            (0, "0005 0001 61 00000003 00000001 00000002"),  # fewer than told
            (2, "0005 00"),  # null
            (2, "0005 ffffffff0f"),
            (2, "0005 8080808080 01"),  # a varint of six bytes
            (2, "0005 02"),
            (2, "0005 02 61 ffffffff0f"),
            (2, "0005 02 61 03 00000001 01 00"),
            (0, "0005 0002 c328 00000000"),  # not UTF-8
        ],
    )
    def test_lengths_counts_varints_and_text(self, version: int, data: str) -> None:
        with pytest.raises(ProtocolError):
            decode(Sample, version, bytes.fromhex(data))

    def test_a_compact_string_longer_than_kafka_allows(self) -> None:
        data = bytes.fromhex("0005 818002") + b"x" * 32768 + b"\x01\x00"
        with pytest.raises(ProtocolError, match="32768"):
            decode(Sample, 2, data)

    def test_the_error_names_the_message_and_the_field(self) -> None:
        with pytest.raises(ProtocolError, match="Sample v0: the length of name"):
            decode(Sample, 0, bytes.fromhex("0005 7fff"))
        with pytest.raises(ProtocolError, match="Sample v0: it ends too early"):
            decode(Sample, 0, bytes.fromhex("0005 00"))
        with pytest.raises(ProtocolError, match="Sample v0: a string is not UTF-8"):
            decode(Sample, 0, bytes.fromhex("0005 0002 c328 00000000"))


class TestRecords:
    def test_they_are_a_view_of_the_received_buffer(self) -> None:
        buffer = encode(Carrier(records=b"12345"), 1)
        view = decode(Carrier, 1, buffer).records
        assert isinstance(view, memoryview)
        buffer[buffer.index(b"1")] = ord("9")
        assert view == b"92345"

    @pytest.mark.parametrize("version", [0, 1])
    def test_small_ones_are_copied_and_large_ones_are_not(self, version: int) -> None:
        assert len(parts_of(Carrier(records=b"small"), version)) == 1
        large = bytes(10_000)
        before, records, after = parts_of(Carrier(before=3, records=large), version, b"head")
        assert records is large
        assert b"".join((before, records, after)) == b"head" + encode(Carrier(before=3, records=large), version)

    @pytest.mark.parametrize("version", [4, 11, 12, 17])
    def test_file_slices_stay_slices(self, version: int) -> None:
        file = SimDisk().open("segment", create=True)
        file.append([b"0123456789"])
        slices = [FileSlice(file, 2, 3), FileSlice(file, 0, 10)]
        response = FetchResponse(
            responses=[
                FetchResponse.FetchableTopicResponse(
                    partitions=[FetchResponse.PartitionData(records=piece) for piece in slices]
                )
            ]
        )
        parts = parts_of(response, version)
        assert [part for part in parts if isinstance(part, FileSlice)] == slices
        joined = b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
        assert joined == encode(response, version)
        decoded = decode(FetchResponse, version, joined).responses[0].partitions
        assert [partition.records for partition in decoded] == [b"234", b"0123456789"]

    def test_a_produce_request_reads_as_declared(self) -> None:
        data = b"\x00" * 61
        partition = ProduceRequest.PartitionProduceData(index=4, records=data)
        topic = ProduceRequest.TopicProduceData(name="orders", partition_data=[partition])
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
        decoded = decode(ProduceRequest, 9, encode(request, 9))
        assert decoded == request
        assert decoded.topic_data[0].partition_data[0].records == data


def test_arrays_of_numbers_and_uuids_of_any_length() -> None:
    class Arrays(Message, versions="0-1", flexible="1+"):
        numbers: list[int] = array(int64, "0+")
        ids: list[bytes] = array(uuid, "0+")
        texts: list[str] = array(string, "0+")

    for size in (0, 1, 126, 127, 128, 1023, 1024, 3000):
        ids = [number.to_bytes(16, "big") for number in range(size)]
        message = Arrays(numbers=list(range(-size, 0)), ids=ids, texts=[str(number) for number in range(size)])
        for version in Arrays.versions:
            assert decode(Arrays, version, encode(message, version)) == message
