"""From the text of a .proto file (proto2, proto3, editions) to a FileDescriptorProto.

As protoc's own parser does it: type names stay as they are written, and `linker` resolves them. Custom options stay
uninterpreted.
"""

from typing import Any

from google.protobuf import descriptor_pb2 as pb

from tailrace.schemas.limits import PROTOBUF_NESTING_MAX
from tailrace.schemas.parsed import InvalidSchema
from tailrace.schemas.protobuf.lexer import Word, unquoted, words
from tailrace.schemas.protobuf.options import add_option, set_field_option

TAG_MAX = (1 << 29) - 1

SCALARS = {
    name: pb.FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
    )
}
_LABELS = {
    "optional": pb.FieldDescriptorProto.LABEL_OPTIONAL,
    "required": pb.FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": pb.FieldDescriptorProto.LABEL_REPEATED,
}


def parse_file(text: str, nesting_max: int = PROTOBUF_NESTING_MAX) -> pb.FileDescriptorProto:
    return _Parser(words(text), min(nesting_max, PROTOBUF_NESTING_MAX)).file()


class _Parser:
    def __init__(self, found: list[Word], nesting_max: int) -> None:
        self._nesting_max = nesting_max  # Of messages, and of values inside of options.
        self._words = found
        self._at = 0
        self._depth = 0
        self._file = pb.FileDescriptorProto()

    # Words.

    @property
    def _next(self) -> Word:
        return self._words[self._at]

    def _ahead(self, count: int) -> Word:
        return self._words[min(self._at + count, len(self._words) - 1)]

    def _take(self) -> Word:
        word = self._words[self._at]
        if word.kind != "end":
            self._at += 1
        return word

    def _fail(self, wanted: str) -> InvalidSchema:
        return InvalidSchema(f"line {self._next.line}: {wanted} was expected, not {self._next.text!r}")

    def _is(self, *texts: str) -> bool:
        return self._next.kind != "string" and self._next.text in texts

    def _skip(self, text: str) -> bool:
        if self._is(text):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            raise self._fail(f"{text!r}")

    def _name(self) -> str:
        if self._next.kind != "name":
            raise self._fail("a name")
        return self._take().text

    def _full_name(self) -> str:
        name = "." if self._skip(".") else ""
        name += self._name()
        while self._skip("."):
            name += "." + self._name()
        return name

    def _text(self) -> str:
        return self._bytes().decode("utf-8", "replace")

    def _bytes(self) -> bytes:
        if self._next.kind != "string":
            raise self._fail("a text in quotes")
        found = b""
        while self._next.kind == "string":
            found += unquoted(self._take().text)
        return found

    def _integer(self) -> int:
        sign = -1 if self._skip("-") else 1
        try:
            text = self._next.text
            value = int(text, 8) if text[0] == "0" and text.isdigit() else int(text, 0)
        except ValueError:
            raise self._fail("a whole number") from None
        self._take()
        return sign * value

    # Statements.

    def file(self) -> pb.FileDescriptorProto:
        file = self._file
        if self._is("syntax", "edition"):
            keyword = self._take().text
            self._expect("=")
            line, value = self._next.line, self._text()
            self._expect(";")
            if keyword == "edition":
                file.syntax = "editions"
                known = pb.Edition.keys()
                if f"EDITION_{value}" not in known:
                    raise InvalidSchema(f"line {line}: edition {value!r} is not known")
                file.edition = pb.Edition.Value(f"EDITION_{value}")
            elif value in ("proto2", "proto3"):
                file.syntax = value
            else:
                raise InvalidSchema(f'line {line}: the syntax is "proto2" or "proto3", not {value!r}')
        while self._next.kind != "end":
            self._statement()
        return file

    def _statement(self) -> None:
        file = self._file
        if self._skip(";"):
            return
        match self._next.text if self._next.kind == "name" else "":
            case "import":
                self._import()
            case "package":
                self._take()
                if file.package:
                    raise InvalidSchema(f"line {self._next.line}: there are two packages")
                file.package = self._full_name()
                self._expect(";")
            case "option":
                self._option(file.options)
            case "message":
                self._message(file.message_type.add())
            case "enum":
                self._enum(file.enum_type.add())
            case "extend":
                self._extend(file.extension, file.message_type)
            case "service":
                self._service(file.service.add())
            case _:
                raise self._fail("message, enum, import, package, option, extend or service")

    def _import(self) -> None:
        self._take()
        kind = self._take().text if self._is("public", "weak", "option") else ""
        name = self._text()
        if kind == "public":
            self._file.public_dependency.append(len(self._file.dependency))
        elif kind == "weak":
            self._file.weak_dependency.append(len(self._file.dependency))
        self._file.dependency.append(name)
        self._expect(";")

    def _message(self, message: pb.DescriptorProto) -> None:
        self._take()
        message.name = self._name()
        self._message_body(message)

    def _message_body(self, message: pb.DescriptorProto) -> None:
        self._deeper()
        self._expect("{")
        while not self._skip("}"):
            if self._skip(";"):
                continue
            follower = self._ahead(1)
            # `message`, `option` and the like may also be names of types; a statement has a name or a number after its
            # word.
            match self._next.text if self._next.kind == "name" else "":
                case "message" if self._ahead(2).text == "{":
                    self._message(message.nested_type.add())
                case "enum" if self._ahead(2).text == "{":
                    self._enum(message.enum_type.add())
                case "extend" if follower.kind == "name" or follower.text == ".":
                    self._extend(message.extension, message.nested_type)
                case "oneof" if self._ahead(2).text == "{":
                    self._oneof(message)
                case "extensions":
                    self._extensions(message)
                case "reserved":
                    self._reserved(message)
                case "option":
                    self._option(message.options)
                case _:
                    self._field(message.field.add(), message.nested_type)
        self._depth -= 1

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > self._nesting_max:
            raise InvalidSchema(f"line {self._next.line}: nested more than {self._nesting_max} levels deep")

    def _field(self, field: pb.FieldDescriptorProto, nested: Any, *, in_oneof: bool = False) -> None:
        field.label = _LABELS["optional"]
        if self._is("optional", "required", "repeated") and not in_oneof and self._ahead(1).text != "=":
            self._label(field)
        if self._is("map") and self._ahead(1).text == "<":
            self._map(field, nested)
        elif self._is("group") and self._ahead(2).text == "=":
            self._group(field, nested)
            return
        else:
            self._field_type(field)
            field.name = self._name()
        self._number_and_options(field)
        self._expect(";")

    def _label(self, field: pb.FieldDescriptorProto) -> None:
        word = self._take()
        field.label = _LABELS[word.text]
        if self._file.syntax == "proto3":
            if word.text == "required":
                raise InvalidSchema(f"line {word.line}: proto3 has no required fields")
            if word.text == "optional":
                field.proto3_optional = True
        elif self._file.syntax == "editions" and word.text != "repeated":
            raise InvalidSchema(f"line {word.line}: editions have no label {word.text!r}: use features.field_presence")

    def _field_type(self, field: pb.FieldDescriptorProto) -> None:
        name = self._full_name()
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            field.type_name = name

    def _number_and_options(self, field: pb.FieldDescriptorProto) -> None:
        self._expect("=")
        line = self._next.line
        field.number = self._tag(line)
        if self._skip("["):
            while True:
                name, value, line = self._name_and_value()
                try:
                    set_field_option(field, name, value)
                except ValueError as error:
                    raise InvalidSchema(f"line {line}: {error}") from None
                if self._skip("]"):
                    break
                self._expect(",")

    def _tag(self, line: int) -> int:
        number = self._integer()
        if not 1 <= number <= TAG_MAX:
            raise InvalidSchema(f"line {line}: the number of a field is from 1 to {TAG_MAX}, not {number}")
        return number

    def _map(self, field: pb.FieldDescriptorProto, nested: Any) -> None:
        self._take()
        self._expect("<")
        entry = nested.add()
        entry.options.map_entry = True
        key = entry.field.add(name="key", number=1, label=_LABELS["optional"])
        self._field_type(key)
        if key.type_name or key.type in (SCALARS["float"], SCALARS["double"], SCALARS["bytes"]):
            raise InvalidSchema(f"line {self._next.line}: the key of a map is a whole number, a bool or a string")
        self._expect(",")
        value = entry.field.add(name="value", number=2, label=_LABELS["optional"])
        self._field_type(value)
        self._expect(">")
        field.name = self._name()
        field.label = _LABELS["repeated"]
        entry.name = map_entry_name(field.name)
        field.type_name = entry.name
        field.type = pb.FieldDescriptorProto.TYPE_MESSAGE

    def _group(self, field: pb.FieldDescriptorProto, nested: Any) -> None:
        self._take()
        name = self._name()
        self._expect("=")
        field.number = self._tag(self._next.line)
        field.name = name.lower()
        field.type = pb.FieldDescriptorProto.TYPE_GROUP
        field.type_name = name
        message = nested.add(name=name)
        self._message_body(message)

    def _oneof(self, message: pb.DescriptorProto) -> None:
        self._take()
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self._name())
        self._expect("{")
        while not self._skip("}"):
            if self._skip(";"):
                continue
            if self._is("option"):
                self._option(oneof.options)
                continue
            field = message.field.add()
            self._field(field, message.nested_type, in_oneof=True)
            field.oneof_index = index

    def _extensions(self, message: pb.DescriptorProto) -> None:
        self._take()
        ranges = self._ranges(TAG_MAX)
        for start, end in ranges:
            message.extension_range.add(start=start, end=end + 1)
        if self._skip("["):
            while True:
                name, value, _ = self._name_and_value()
                for each in message.extension_range[-len(ranges) :]:
                    add_option(each.options, name, value)
                if self._skip("]"):
                    break
                self._expect(",")
        self._expect(";")

    def _reserved(self, message: pb.DescriptorProto) -> None:
        self._take()
        if self._next.kind == "number":
            for start, end in self._ranges(TAG_MAX):
                message.reserved_range.add(start=start, end=end + 1)
        else:
            message.reserved_name.extend(self._names())
        self._expect(";")

    def _names(self) -> list[str]:
        names = []
        while True:
            names.append(self._text() if self._next.kind == "string" else self._name())
            if not self._skip(","):
                return names

    def _ranges(self, last: int) -> list[tuple[int, int]]:
        ranges = []
        while True:
            start = self._integer()
            end = start
            if self._skip("to"):
                end = last if self._skip("max") else self._integer()
            ranges.append((start, end))
            if not self._skip(","):
                return ranges

    def _enum(self, enum: pb.EnumDescriptorProto) -> None:
        self._take()
        enum.name = self._name()
        self._expect("{")
        while not self._skip("}"):
            if self._skip(";"):
                continue
            if self._is("option") and self._ahead(1).text != "=":
                self._option(enum.options)
            elif self._is("reserved") and self._ahead(1).text != "=":
                self._take()
                if self._next.kind == "number" or self._is("-"):
                    for start, end in self._ranges((1 << 31) - 1):
                        enum.reserved_range.add(start=start, end=end)
                else:
                    enum.reserved_name.extend(self._names())
                self._expect(";")
            else:
                value = enum.value.add(name=self._name())
                self._expect("=")
                value.number = self._integer()
                if self._skip("["):
                    while True:
                        name, given, _ = self._name_and_value()
                        add_option(value.options, name, given)
                        if self._skip("]"):
                            break
                        self._expect(",")
                self._expect(";")

    def _extend(self, extensions: Any, nested: Any) -> None:
        self._take()
        extendee = self._full_name()
        self._expect("{")
        while not self._skip("}"):
            if self._skip(";"):
                continue
            field = extensions.add(extendee=extendee)
            self._field(field, nested)

    def _service(self, service: pb.ServiceDescriptorProto) -> None:
        self._take()
        service.name = self._name()
        self._expect("{")
        while not self._skip("}"):
            if self._skip(";"):
                continue
            if self._is("option"):
                self._option(service.options)
                continue
            self._expect("rpc")
            method = service.method.add(name=self._name())
            self._expect("(")
            method.client_streaming = self._skip("stream")
            method.input_type = self._full_name()
            self._expect(")")
            self._expect("returns")
            self._expect("(")
            method.server_streaming = self._skip("stream")
            method.output_type = self._full_name()
            self._expect(")")
            if self._skip("{"):
                while not self._skip("}"):
                    if not self._skip(";"):
                        self._option(method.options)
            else:
                self._expect(";")

    # Options.

    def _option(self, options: Any) -> None:
        self._expect("option")
        name, value, line = self._name_and_value()
        try:
            add_option(options, name, value)
        except ValueError as error:
            raise InvalidSchema(f"line {line}: {error}") from None
        self._expect(";")

    def _name_and_value(self) -> tuple[list[tuple[str, bool]], Word, int]:
        """The parts of an option's name, each with whether it stands in parentheses, and its value."""
        line = self._next.line
        parts = []
        while True:
            if self._skip("("):
                parts.append((self._full_name(), True))
                self._expect(")")
            else:
                parts.append((self._name(), False))
            if not self._skip("."):
                break
        self._expect("=")
        return parts, self._value(), line

    def _value(self) -> Word:
        line = self._next.line
        if self._is("{"):
            return Word("aggregate", self._aggregate(), line)
        if self._next.kind == "string":
            return Word("string", self._bytes().decode("latin-1"), line)
        sign = "-" if self._skip("-") else ""
        if self._next.kind not in ("name", "number"):
            raise self._fail("a value")
        word = self._take()
        return Word(word.kind, sign + word.text, line)

    def _aggregate(self) -> str:
        """The text between braces, as Protobuf's text format."""
        self._expect("{")
        pieces: list[str] = []
        depth = 1
        while True:
            word = self._take()
            if word.kind == "end":
                raise self._fail("'}'")
            depth += {"{": 1, "}": -1}.get(word.text, 0) if word.kind == "mark" else 0
            if depth == 0:
                return " ".join(pieces)
            if depth > self._nesting_max:
                raise InvalidSchema(f"line {word.line}: nested more than {self._nesting_max} levels deep")
            pieces.append(word.text)


def map_entry_name(field: str) -> str:
    """labels_by_key -> LabelsByKeyEntry, as protoc names it."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"
