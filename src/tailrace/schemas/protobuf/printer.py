"""A FileDescriptorProto as the text of a .proto file, in the form in which Confluent's registry stores it.

Normalized, everything has one order (fields by number, options by name), and names of types are full ones: then the
text that Java sends and the descriptor that Python sends come out the same.
"""

from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as _Field

from tailrace.schemas.protobuf.options import escaped
from tailrace.schemas.protobuf.parser import SCALARS, TAG_MAX

_TYPE_NAMES = {number: name for name, number in SCALARS.items()}


def print_file(file: pb.FileDescriptorProto, *, normalize: bool) -> str:
    return "".join(_Printer(file, normalize).file())


class _Printer:
    def __init__(self, file: pb.FileDescriptorProto, normalize: bool) -> None:
        self._file = file
        self._normalize = normalize

    def file(self) -> Iterable[str]:
        file = self._file
        if file.syntax == "editions":
            yield f'edition = "{pb.Edition.Name(file.edition).removeprefix("EDITION_")}";\n'
        elif file.syntax == "proto3" or (file.syntax and not self._normalize):
            yield f'syntax = "{file.syntax}";\n'
        if file.package:
            yield f"package {file.package};\n"
        public = set(file.public_dependency)
        plain = [name for index, name in enumerate(file.dependency) if index not in public]
        shared = [name for index, name in enumerate(file.dependency) if index in public]
        if self._normalize:
            plain, shared = sorted(set(plain)), sorted(set(shared))
        if plain or shared:
            yield "\n"
        yield from (f'import "{name}";\n' for name in plain)
        yield from (f'import public "{name}";\n' for name in shared)
        if options := self._options(file.options):
            yield "\n"
            yield from (f"option {each};\n" for each in options)
        if file.message_type or file.enum_type:
            yield "\n"
        for message in file.message_type:
            yield from self._message(message)
        for enum in file.enum_type:
            yield from self._enum(enum)
        if file.extension:
            yield "\n"
            yield from self._extends(file.extension, file.message_type)
        if file.service:
            yield "\n"
        for service in file.service:
            yield from self._service(service)

    def _message(self, message: pb.DescriptorProto, head: str = "") -> Iterable[str]:
        yield f"{head or f'message {message.name}'} {{\n"
        reserved = [_range(each.start, each.end - 1, TAG_MAX) for each in self._sorted(message.reserved_range, _start)]
        reserved += [f'"{name}"' for name in self._sorted(message.reserved_name, str)]
        for each in reserved:
            yield f"  reserved {each};\n"
        for each in self._options(message.options, leave_out=("map_entry",)):
            yield f"  option {each};\n"
        in_oneofs = {index: [] for index in range(len(message.oneof_decl))}  # type: dict[int, list[_Field]]
        for field in self._sorted(message.field, _number):
            if _is_in_oneof(field):
                in_oneofs[field.oneof_index].append(field)
            else:
                yield from _indented(self._field(field, message.nested_type))
        for index, fields in sorted(
            in_oneofs.items(), key=lambda each: each[1][0].number if self._normalize and each[1] else each[0]
        ):
            oneof = message.oneof_decl[index]
            if not fields:
                continue  # it only stands for an `optional` of proto3
            yield f"  oneof {oneof.name} {{\n"
            yield from (f"    option {each};\n" for each in self._options(oneof.options))
            for field in fields:
                yield from _indented(_indented(self._field(field, message.nested_type)))
            yield "  }\n"
        for extension in self._sorted(message.extension_range, _start):
            options = self._bracketed(self._options(extension.options))
            yield f"  extensions {_range(extension.start, extension.end - 1, TAG_MAX)}{options};\n"
        yield from _indented(self._extends(message.extension, message.nested_type))
        groups = {field.type_name.rpartition(".")[2] for field in message.field if field.type == _Field.TYPE_GROUP}
        for nested in message.nested_type:
            if not nested.options.map_entry and nested.name not in groups:
                yield from _indented(self._message(nested))
        for enum in message.enum_type:
            yield from _indented(self._enum(enum))
        yield "}\n"

    def _field(self, field: _Field, nested: Iterable[pb.DescriptorProto]) -> Iterable[str]:
        label = self._label(field)
        if field.type == _Field.TYPE_GROUP:
            name = field.type_name.rpartition(".")[2]
            group = next(each for each in nested if each.name == name)
            yield from self._message(group, head=f"{label}group {name} = {field.number}")
            return
        if (entry := map_entry(field, nested)) is not None:
            kind, label = f"map<{self._type(entry.field[0])}, {self._type(entry.field[1])}>", ""
        else:
            kind = self._type(field)
        options = []
        if field.HasField("default_value"):
            quoted = field.type in (_Field.TYPE_STRING, _Field.TYPE_BYTES)
            value = field.default_value
            if field.type == _Field.TYPE_STRING:
                value = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            options.append(f'default = "{value}"' if quoted else f"default = {value}")
        if field.json_name and field.json_name != json_name(field.name):
            options.append(f'json_name = "{field.json_name}"')
        options += self._options(field.options)
        yield f"{label}{kind} {field.name} = {field.number}{self._bracketed(options)};\n"

    def _label(self, field: _Field) -> str:
        if field.label == _Field.LABEL_REPEATED:
            return "repeated "
        if self._file.syntax == "editions" or _is_in_oneof(field):
            return ""
        if self._file.syntax == "proto3":
            return "optional " if field.proto3_optional else ""
        return "required " if field.label == _Field.LABEL_REQUIRED else "optional "

    def _type(self, field: _Field) -> str:
        return field.type_name or _TYPE_NAMES[field.type]

    def _enum(self, enum: pb.EnumDescriptorProto) -> Iterable[str]:
        yield f"enum {enum.name} {{\n"
        reserved = [_range(each.start, each.end, (1 << 31) - 1) for each in self._sorted(enum.reserved_range, _start)]
        reserved += [f'"{name}"' for name in self._sorted(enum.reserved_name, str)]
        yield from (f"  reserved {each};\n" for each in reserved)
        yield from (f"  option {each};\n" for each in self._options(enum.options))
        for value in self._sorted(enum.value, lambda each: (each.number, each.name)):
            yield f"  {value.name} = {value.number}{self._bracketed(self._options(value.options))};\n"
        yield "}\n"

    def _extends(self, extensions: Iterable[_Field], nested: Iterable[pb.DescriptorProto]) -> Iterable[str]:
        groups: dict[str, list[_Field]] = {}
        for each in extensions:
            groups.setdefault(each.extendee, []).append(each)
        for extendee, fields in groups.items():
            yield f"extend {extendee} {{\n"
            for field in self._sorted(fields, _number):
                yield from _indented(self._field(field, nested))
            yield "}\n"

    def _service(self, service: pb.ServiceDescriptorProto) -> Iterable[str]:
        yield f"service {service.name} {{\n"
        yield from (f"  option {each};\n" for each in self._options(service.options))
        for method in service.method:
            asked = ("stream " if method.client_streaming else "") + method.input_type
            given = ("stream " if method.server_streaming else "") + method.output_type
            options = self._options(method.options)
            tail = "".join(f"    option {each};\n" for each in options)
            yield f"  rpc {method.name} ({asked}) returns ({given})" + (f" {{\n{tail}  }}\n" if options else ";\n")
        yield "}\n"

    def _options(self, options: Any, leave_out: tuple[str, ...] = ()) -> list[str]:
        found = []
        for field, value in options.ListFields():
            if field.name == "uninterpreted_option":
                found += [_custom(each) for each in value]
            elif field.name not in leave_out:
                found += _written(field.name, field, value)
        return sorted(found) if self._normalize else found

    def _bracketed(self, options: list[str]) -> str:
        if not options:
            return ""
        if len(options) == 1:
            return f" [{options[0]}]"
        return " [\n" + ",\n".join(f"  {each}" for each in options) + "\n]"

    def _sorted(self, values: Iterable[Any], key: Callable[[Any], Any]) -> list[Any]:
        return sorted(values, key=key) if self._normalize else list(values)


def json_name(name: str) -> str:
    """The name in JSON that protoc gives a field: to_camel -> toCamel."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def map_entry(field: _Field, nested: Iterable[pb.DescriptorProto]) -> pb.DescriptorProto | None:
    if field.type != _Field.TYPE_MESSAGE or field.label != _Field.LABEL_REPEATED:
        return None
    name = field.type_name.rpartition(".")[2]
    return next((each for each in nested if each.options.map_entry and each.name == name), None)


def _is_in_oneof(field: _Field) -> bool:
    return field.HasField("oneof_index") and not field.proto3_optional


def _number(field: _Field) -> int:
    return int(field.number)


def _start(reserved: Any) -> int:
    return int(reserved.start)


def _range(start: int, last: int, greatest: int) -> str:
    return str(start) if start == last else f"{start} to {'max' if last >= greatest else last}"


def _indented(lines: Iterable[str]) -> Iterable[str]:
    return ("".join(f"  {line}\n" for line in each.splitlines()) for each in lines)


def _written(name: str, field: FieldDescriptor, value: Any) -> list[str]:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        if field.is_repeated:
            return [f"{name} = {{ {' '.join(str(each).split())} }}" for each in value]
        return [text for inner, given in value.ListFields() for text in _written(f"{name}.{inner.name}", inner, given)]
    if field.is_repeated:
        return [text for each in value for text in _scalar(name, field, each)]
    return _scalar(name, field, value)


def _scalar(name: str, field: FieldDescriptor, value: Any) -> list[str]:
    if field.type == FieldDescriptor.TYPE_ENUM:
        return [f"{name} = {field.enum_type.values_by_number[value].name}"]
    if field.type == FieldDescriptor.TYPE_BOOL:
        return [f"{name} = {'true' if value else 'false'}"]
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        raw = value.encode() if isinstance(value, str) else value
        return [f'{name} = "{escaped(raw)}"']
    return [f"{name} = {value}"]


def _custom(option: pb.UninterpretedOption) -> str:
    name = ".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in option.name)
    if option.HasField("aggregate_value"):
        return f"{name} = {{ {option.aggregate_value} }}"
    if option.HasField("string_value"):
        return f'{name} = "{escaped(option.string_value)}"'
    if option.HasField("identifier_value"):
        return f"{name} = {option.identifier_value}"
    if option.HasField("double_value"):
        return f"{name} = {option.double_value!r}"
    return f"{name} = {option.positive_int_value or option.negative_int_value}"
