"""A Protobuf schema as the rest of Tailrace sees it: the text of a .proto file, or a FileDescriptorProto in base64,
which is the same.
"""

import base64
import binascii
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.message import DecodeError

from tailrace.schemas.limits import Limits
from tailrace.schemas.parsed import PROTOBUF, Difference, InvalidSchema, ParsedSchema
from tailrace.schemas.protobuf.compatibility import COMPATIBLE, Side, compare, told
from tailrace.schemas.protobuf.linker import link, symbols_of
from tailrace.schemas.protobuf.parser import parse_file
from tailrace.schemas.protobuf.printer import print_file

# The name of a file that came as text.
NO_NAME = "default.proto"

_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+=*\s*\Z")


class ProtobufSchema(ParsedSchema):
    schema_type = PROTOBUF

    def __init__(self, text: str, references: Mapping[str, ParsedSchema], limits: Limits) -> None:
        self.references = dict(references)
        # As it was written, for the text; and linked, for everything else.
        written = _from_base64(text) if _BASE64.match(text) else parse_file(text, limits.nesting_max)
        self.file = pb.FileDescriptorProto()
        self.file.CopyFrom(written)
        self.file.name = written.name or NO_NAME
        imports: dict[str, pb.FileDescriptorProto] = {}
        for name, each in references.items():
            assert isinstance(each, ProtobufSchema)
            imports |= each.needed
            imports[name] = _renamed(each.file, name)
        # Every file that this one needs, in the order in which a descriptor pool takes them.
        self.needed: dict[str, pb.FileDescriptorProto] = link(self.file, imports)
        self.text = print_file(written, normalize=False)
        self._normalized = print_file(self.file, normalize=True)

    @property
    def canonical_key(self) -> str:
        """The normalized text, because the same file arrives as text from Java and as a descriptor from Python."""
        return self._normalized

    def normalized(self) -> str:
        return self._normalized

    def formatted(self, format_name: str) -> str:
        """`serialized` is the descriptor in base64; `ignore_extensions` leaves extensions out."""
        if format_name == "serialized":
            return base64.b64encode(self.file.SerializeToString(deterministic=True)).decode()
        if format_name == "ignore_extensions":
            return print_file(_without_extensions(self.file), normalize=False)
        return self.text

    @property
    def top_fields(self) -> Collection[str]:
        return [field.name for message in self.file.message_type for field in message.field]

    def reads(self, writer: ParsedSchema, *, is_lenient: bool = False) -> Sequence[Difference]:
        del is_lenient
        assert isinstance(writer, ProtobufSchema)
        return [told(rule, path) for rule, path in compare(writer._side(), self._side()) if rule not in COMPATIBLE]

    def _side(self) -> Side:
        types: dict[str, tuple[Any, str, bool]] = {}
        for each in self.needed.values():
            types |= {name: (found, each.package, True) for name, found in symbols_of(each).items()}
        types |= {name: (found, self.file.package, False) for name, found in symbols_of(self.file).items()}
        return Side(self.file, types)


def _from_base64(text: str) -> pb.FileDescriptorProto:
    file = pb.FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(text, validate=False))
    except (binascii.Error, DecodeError, ValueError):
        raise InvalidSchema("it is neither the text of a .proto file nor a FileDescriptorProto in base64") from None
    return file


def _renamed(file: pb.FileDescriptorProto, name: str) -> pb.FileDescriptorProto:
    renamed = pb.FileDescriptorProto()
    renamed.CopyFrom(file)
    renamed.name = name
    return renamed


def _without_extensions(file: pb.FileDescriptorProto) -> pb.FileDescriptorProto:
    plain = pb.FileDescriptorProto()
    plain.CopyFrom(file)
    plain.ClearField("extension")
    waiting = list(plain.message_type)
    while waiting:
        message = waiting.pop()
        message.ClearField("extension")
        message.ClearField("extension_range")
        waiting += message.nested_type
    return plain
