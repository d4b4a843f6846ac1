"""Protobuf: the parser against protoc's own descriptors, text and descriptor as one schema, and what is refused."""

import base64
import importlib

import pytest
from google.protobuf import descriptor_pb2 as pb

from tailrace.schemas import InvalidSchema, check, parse
from tailrace.schemas.protobuf.schema import ProtobufSchema

ORDERS = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
option java_package = "com.shop";
// An order.
message Order {
  int64 id = 1;
  optional string note = 2 [deprecated = true];
  repeated Line lines = 3;
  map<string, int32> counts = 4;
  oneof paid_by { string card = 5; bytes token = 6; }
  google.protobuf.Timestamp at = 7;
  enum State { NEW = 0; SENT = 1; }
  State state = 8 [json_name = "st"];
  message Line { string sku = 1; sint32 amount = 2; }
  reserved 10 to 12, 20;
  reserved "old";
}
service Shop { rpc Put (Order) returns (stream Order.Line); }
"""


def schema(text, references=None):
    found = parse("PROTOBUF", text, references or {})
    assert isinstance(found, ProtobufSchema)
    return found


def test_text_and_descriptor_are_one_schema():
    text = schema(ORDERS)
    descriptor = schema(text.formatted("serialized"))
    assert descriptor.canonical_key == text.canonical_key
    assert descriptor.normalized() == text.normalized()
    assert schema(text.text).canonical_key == text.canonical_key
    assert schema(text.normalized()).canonical_key == text.canonical_key


def test_the_order_of_fields_does_not_matter_and_that_of_messages_does():
    one = schema('syntax = "proto3"; message A { int32 x = 1; int32 y = 2; } message B { }')
    two = schema('syntax = "proto3"; message A { int32 y = 2; int32 x = 1; } message B { }')
    three = schema('syntax = "proto3"; message B { } message A { int32 x = 1; int32 y = 2; }')
    assert one.canonical_key == two.canonical_key
    assert one.canonical_key != three.canonical_key


@pytest.mark.parametrize("name", ["any", "api", "descriptor", "struct", "timestamp", "type", "wrappers"])
def test_a_descriptor_of_protoc_survives_the_way_through_text(name):
    module = importlib.import_module(f"google.protobuf.{name}_pb2")
    file = pb.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    given = schema(base64.b64encode(file.SerializeToString()).decode())
    again = schema(given.text)
    assert again.canonical_key == given.canonical_key
    waiting = [*file.message_type, *again.file.message_type]
    while waiting:
        message = waiting.pop()
        waiting += message.nested_type
        for field in message.field:
            field.ClearField("json_name")
    assert [each.SerializeToString(deterministic=True) for each in again.file.message_type] == [
        each.SerializeToString(deterministic=True) for each in file.message_type
    ]


def test_the_text_is_in_confluents_form():
    assert (
        schema(ORDERS).text
        == """syntax = "proto3";
package shop;

import "google/protobuf/timestamp.proto";

option java_package = "com.shop";

message Order {
  reserved 10 to 12;
  reserved 20;
  reserved "old";
  int64 id = 1;
  optional string note = 2 [deprecated = true];
  repeated Line lines = 3;
  map<string, int32> counts = 4;
  google.protobuf.Timestamp at = 7;
  State state = 8 [json_name = "st"];
  oneof paid_by {
    string card = 5;
    bytes token = 6;
  }
  message Line {
    string sku = 1;
    sint32 amount = 2;
  }
  enum State {
    NEW = 0;
    SENT = 1;
  }
}

service Shop {
  rpc Put (Order) returns (stream Order.Line);
}
"""
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("message A {", "line 1"),
        ('syntax = "proto4";', "proto4"),
        ('syntax = "proto3"; message A { required int32 x = 1; }', "no required fields"),
        ('syntax = "proto3"; message A { int32 x = 0; }', "from 1 to"),
        ('syntax = "proto3"; message A { int32 x = 1; int32 y = 1; }', "[Nn]umber|already"),
        ('syntax = "proto3"; message A { Nothing x = 1; }', '"Nothing" is not defined'),
        ('syntax = "proto3"; import "a.proto"; message A { }', "list it in `references`"),
        ('syntax = "proto3"; message A { map<float, int32> m = 1; }', "key of a map"),
        ('syntax = "proto3"; message A { } message A { }', "A"),
        ('syntax = "proto3"; enum E { }', "E|value"),
        ('syntax = "proto3"; option unheard = 1;', "no option unheard"),
        ('edition = "1999"; message A { }', "edition"),
        ("AAAA", "neither the text"),
        ('syntax = "proto3"; message A { int32 x = 1; } $', "is not Protobuf"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_place_and_the_reason(text, why):
    with pytest.raises(InvalidSchema, match=why):
        schema(text)


def test_proto2_and_editions():
    old = schema(
        'syntax = "proto2"; package p; message A { required int32 x = 1; optional string s = 2 [default = "a\\"b"]; '
        "repeated group G = 3 { optional int32 y = 1; } extensions 100 to max; } "
        "extend A { optional int32 more = 100; }"
    )
    assert schema(old.text).canonical_key == old.canonical_key
    assert schema(old.formatted("serialized")).canonical_key == old.canonical_key
    required = "int32 x = 1 [features.field_presence = LEGACY_REQUIRED];"
    edition = schema(f'edition = "2023"; message A {{ {required} int32 y = 2; }}')
    assert schema(edition.text).canonical_key == edition.canonical_key
    assert [
        each.rule for each in check("BACKWARD", edition, [(1, schema('edition = "2023"; message A { int32 y = 2; }'))])
    ] == ["REQUIRED_FIELD_ADDED"]


def test_references_and_files_that_everybody_has():
    line = schema('syntax = "proto3"; package shop; message Line { string sku = 1; }')
    order = (
        'syntax = "proto3"; import "line.proto"; import "confluent/meta.proto"; message Order { shop.Line line = 1; }'
    )
    old = schema(order, {"line.proto": line})
    changed = schema('syntax = "proto3"; package shop; message Line { int32 sku = 1; }')
    rules = {each.rule for each in check("BACKWARD", schema(order, {"line.proto": changed}), [(1, old)])}
    assert rules == {"FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"}


def test_a_refusal_tells_where_which_rule_and_what_would_pass():
    new = schema(ORDERS.replace("sint32 amount", "string amount"))
    (found,) = check("BACKWARD", new, [(2, schema(ORDERS))])
    assert (found.rule, found.path, found.version) == ("FIELD_SCALAR_KIND_CHANGED", "#/Order/Line/2", 2)
    assert found.message == (
        '{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The kind of a SCALAR field at path \'#/Order/Line/2\' in '
        'the new schema does not match its kind in the old schema"}'
    )
    assert "new number" in found.remedy
