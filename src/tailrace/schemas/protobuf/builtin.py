"""Files that every Protobuf schema may import without a reference: Google's well-known types, and Confluent's two."""

from functools import cache

from google.protobuf import descriptor_pb2 as pb

from tailrace.schemas.parsed import names
from tailrace.schemas.protobuf.parser import parse_file

_GOOGLE = names("any api descriptor duration empty field_mask source_context struct timestamp type wrappers")

_CONFLUENT = {
    "confluent/meta.proto": """
        syntax = "proto3"; package confluent;
        import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
    """,
    "confluent/type/decimal.proto": """
        syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
}


@cache
def builtin(name: str) -> pb.FileDescriptorProto | None:
    """The file of that name, or None if it is not one of these. Confluent's still have to be linked."""
    if name in _CONFLUENT:
        file = parse_file(_CONFLUENT[name])
        file.name = name
        return file
    folder, _, plain = name.rpartition("/")
    if folder != "google/protobuf" or plain.removesuffix(".proto") not in _GOOGLE:
        return None
    from importlib import import_module

    module = import_module(f"google.protobuf.{plain.removesuffix('.proto')}_pb2")
    file = pb.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file
