"""Values as JSON and back."""

import json

import pytest

from tailrace.schemas import parse
from tailrace.schemas.codecs import CodecError, decoder, encoder, message_indexes, message_name
from tailrace.schemas.framing import FramingError

AVRO = {
    "type": "record",
    "name": "app.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "raw", "type": "bytes"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "more", "type": {"type": "array", "items": ["null", {"type": "map", "values": "Hash"}]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW"]}},
    ],
}
PROTO = 'syntax = "proto3"; package p; message A { message B { string s = 1; } int64 id = 1; B b = 2; } message C { }'


def test_avro_as_json_and_back():
    schema = parse("AVRO", json.dumps(AVRO), {})
    value = {"id": 1, "note": "n", "raw": "\xff", "hash": "ab", "more": [None, {"k": "cd"}], "at": 5, "state": "NEW"}
    data = encoder(schema)(json.dumps(value))
    assert json.loads(decoder(schema)(data)) == value


def test_avro_with_references():
    address = parse("AVRO", '{"type":"record","name":"Address","fields":[{"name":"zip","type":"string"}]}', {})
    user = (
        '{"type":"record","name":"User","fields":[{"name":"home","type":"Address"},{"name":"work","type":"Address"}]}'
    )
    schema = parse("AVRO", user, {"address": address})
    value = {"home": {"zip": "1"}, "work": {"zip": "2"}}
    assert json.loads(decoder(schema)(encoder(schema)(json.dumps(value)))) == value


UNIONS = {
    "type": "record",
    "name": "app.Reading",
    "fields": [
        {"name": "note", "type": ["null", "string", {"type": "map", "values": ["null", "long"]}], "default": None},
        {"name": "size", "type": ["int", "double"]},
        {
            "name": "of",
            "type": ["null", {"type": "record", "name": "Sensor", "fields": [{"name": "id", "type": "bytes"}]}],
        },
        {"name": "next", "type": ["null", "Sensor"], "default": None},
    ],
}


@pytest.mark.parametrize(
    ("wrapped", "plain"),
    [
        ({"note": {"string": "a"}, "size": {"double": 1}, "of": None}, {"note": "a", "size": 1.0, "of": None}),
        (
            {
                "note": {"map": {"a": {"long": 1}, "b": None}},
                "size": {"int": 2},
                "of": {"app.Sensor": {"id": "\u00ff"}},
            },
            {"note": {"a": 1, "b": None}, "size": 2, "of": {"id": "\u00ff"}},
        ),
        (
            {"size": {"int": 3}, "of": None, "next": {"app.Sensor": {"id": ""}}},
            {"size": 3, "of": None, "next": {"id": ""}},
        ),
    ],
)
def test_unions_may_be_wrapped_as_avro_wraps_them(wrapped, plain):
    schema = parse("AVRO", json.dumps(UNIONS), {})
    told = {"note": None, "next": None, **plain}
    for value in (wrapped, plain):
        assert json.loads(decoder(schema)(encoder(schema)(json.dumps(value)))) == told


def test_a_type_may_be_meant_whose_definition_no_value_reaches():
    hashes = {"type": "array", "items": {"type": "fixed", "name": "Hash", "size": 2}}
    fields = [{"name": "old", "type": hashes}, {"name": "new", "type": "Hash"}]
    schema = parse("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}), {})
    assert encoder(schema)('{"old": [], "new": "ab"}') == b"\0ab"


def test_protobuf_as_json_and_back():
    schema = parse("PROTOBUF", PROTO, {})
    data = encoder(schema)('{"id": "5", "b": {"s": "x"}}')
    assert data[0] == 0
    assert json.loads(decoder(schema)(data)) == {"id": "5", "b": {"s": "x"}}
    inner = encoder(schema, "p.A.B")('{"s": "x"}')
    assert json.loads(decoder(schema)(inner)) == {"s": "x"}
    assert message_name(schema, message_indexes(schema, "p.A.B")) == "p.A.B"


@pytest.mark.parametrize(
    ("kind", "text", "data"),
    [
        ("AVRO", '"string"', b"\x08ab"),
        ("AVRO", '"int"', b"\x02\x02"),
        ("PROTOBUF", PROTO, b"\x00\x08"),
        ("PROTOBUF", PROTO, b"\x02\x12"),
        ("PROTOBUF", PROTO, b""),
    ],
)
def test_data_of_another_schema_is_told(kind, text, data):
    with pytest.raises((CodecError, FramingError)):
        decoder(parse(kind, text, {}))(data)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("AVRO", '"int"', '"a"'),
        ("AVRO", '"int"', "{"),
        ("AVRO", json.dumps(AVRO), "{}"),
        ("JSON", "{}", "{"),
        ("PROTOBUF", PROTO, '{"no": 1}'),
    ],
)
def test_values_that_do_not_fit_are_told(kind, text, value):
    with pytest.raises(CodecError):
        encoder(parse(kind, text, {}))(value)


def test_a_message_that_is_not_there_is_told():
    with pytest.raises(CodecError, match=r"no message p\.X"):
        encoder(parse("PROTOBUF", PROTO, {}), "p.X")
