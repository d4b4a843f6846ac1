"""Records as requests write them: the bytes that follow, and what is refused."""

import pytest

from tailrace.apps.gateway.consume.shown import Shown, show
from tailrace.apps.gateway.errors import GatewayError
from tailrace.apps.gateway.produce.records import Part, PlainFormat, read_plain, read_v3
from tailrace.apps.gateway.produce.sending import iso_time
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.wire.records import Record

WHERE = TopicPartition("t", PartitionIndex(3))


def test_values_by_their_type():
    record = read_v3(
        {
            "key": {"type": "STRING", "data": "grün"},
            "value": {"type": "JSON", "data": {"a": [1, None, "水"]}},
            "headers": [{"name": "h", "value": "AP8="}, {"name": "none", "value": None}],
            "partition_id": 2,
            "timestamp": "2026-01-31T12:00:00.5Z",
        },
        10,
    )
    assert record.key == "grün".encode()
    assert record.value == '{"a":[1,null,"水"]}'.encode()
    assert list(record.headers) == [("h", b"\x00\xff"), ("none", None)]
    assert record.partition == 2
    assert iso_time(record.timestamp or 0) == "2026-01-31T12:00:00.500Z"
    assert (record.key_part, record.value_part) == (Part("STRING", 5), Part("JSON", 20))


def test_what_is_left_out_is_null():
    assert read_v3({}, 0) == (None, None, (), None, None, None, None)
    assert read_v3({"value": {"type": "JSON", "data": None}}, 0).value is None
    assert read_v3({"value": {"data": "AA=="}}, 0).value == b"\0"


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"valu": {}}, 42206),
        ({"value": "text"}, 42206),
        ({"value": {"type": "BINARY", "data": "no base64!"}}, 400),
        ({"value": {"type": "BINARY", "data": 1}}, 400),
        ({"value": {"type": "STRING", "data": {}}}, 400),
        ({"value": {"type": "STRING", "data": "\ud800"}}, 400),
        ({"value": {"type": "XML", "data": "x"}}, 400),
        ({"value": {"type": ["JSON"], "data": "x"}}, 400),
        ({"value": {"type": "AVRO", "data": "x"}}, 42207),
        ({"value": {"schema_id": 1, "data": "x"}}, 42207),
        ({"partition_id": -1}, 40402),
        ({"partition_id": 1 << 40}, 40402),
        ({"partition_id": True}, 42206),
        ({"partition_id": "1"}, 42206),
        ({"timestamp": "yesterday"}, 400),
        ({"timestamp": -5}, 400),
        ({"timestamp": "1960-01-01T00:00:00Z"}, 400),
        ({"headers": {"a": "b"}}, 42206),
        ({"headers": [{"name": "a"}] * 11}, 42206),
        ({"headers": [{"value": "AA=="}]}, 42206),
        ({"headers": [{"name": "\udc00"}]}, 400),
    ],
)
def test_what_a_record_cannot_be(document: dict, code: int):
    with pytest.raises(GatewayError) as failure:
        read_v3(document, 10)
    assert failure.value.code == code


def test_half_a_pair_of_surrogates_is_an_escape_in_json():
    assert read_v3({"value": {"type": "JSON", "data": "\ud800"}}, 0).value == b'"\\ud800"'


def test_the_plain_form():
    record = read_plain({"key": "k", "value": {"a": 1}, "headers": {"h": "x"}, "partition": 1}, PlainFormat(), 5)
    assert record[:4] == (b"k", b'{"a":1}', [("h", b"x")], 1)
    assert read_plain({"value": "AP8="}, PlainFormat(value="BINARY"), 5).value == b"\x00\xff"
    for bad in ([], {"value": 1, "value_base64": ""}, {"key": 1}, {"headers": {"a": 1}}, {"val": 1}):
        with pytest.raises(GatewayError):
            read_plain(bad, PlainFormat(), 5)


@pytest.mark.parametrize(
    "record",
    [
        Record(5, 7, b"k", b'{"a": 1.10, "b": "\xe6\xb0\xb4"}', (("h", b"x"), ("h", b"\xff"), ("none", None))),
        Record(5, 7, None, None),
        Record(5, 7, b"\xff", b"not json"),
        Record(5, 7, b"line\nend\r\xe2\x80\xa8", b'{"a":\n1}'),
        Record(5, 7, b"", b""),
        Record(5, 7, b'"quoted"', b"[" * 100_000),
        Record(5, 7, None, b"NaN"),
    ],
)
@pytest.mark.parametrize("value_format", ["json", "string", "binary"])
def test_what_is_shown_can_be_written_again_and_is_one_line(record: Record, value_format: str):
    import json

    line = show(WHERE, record, Shown(value=value_format))
    assert "\n" not in line
    assert "\r" not in line
    shown = json.loads(line)
    assert (shown["topic"], shown["partition"], shown["offset"], shown["timestamp"]) == ("t", 3, 5, 7)
    kept = {name: found for name, found in shown.items() if name not in ("topic", "offset")}
    again = read_plain(kept, PlainFormat(value=value_format.upper()), 10)
    assert again.key == record.key
    assert tuple(again.headers) == record.headers
    same = again.value == record.value
    assert same or json.loads(again.value or b"") == json.loads(record.value or b"")


def test_numbers_stay_as_they_were_written():
    assert '"value":{"a":1.10,"b":12345678901234567890.123}' in show(
        WHERE, Record(0, 0, None, b'{"a":1.10,"b":12345678901234567890.123}'), Shown()
    )
