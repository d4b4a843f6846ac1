"""Names of types resolved, as protoc does it: from the innermost scope outwards, here and in what is imported."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as _Field

from tailrace.schemas.parsed import InvalidSchema
from tailrace.schemas.protobuf.builtin import builtin

Symbols = dict[str, pb.DescriptorProto | pb.EnumDescriptorProto]


def link(
    file: pb.FileDescriptorProto, imports: Mapping[str, pb.FileDescriptorProto]
) -> dict[str, pb.FileDescriptorProto]:
    """Resolves every name in `file`; gives all that it needs, in the order in which a pool takes them.

    `imports` are linked files by the names under which they are imported, with the imports of those.
    """
    needed: dict[str, pb.FileDescriptorProto] = {}
    _collect(file, imports, needed, ())
    symbols: Symbols = {}
    for each in (*needed.values(), file):
        symbols |= symbols_of(each)
    _Linker(file, symbols).run()
    _check(file, needed.values())
    return needed


def symbols_of(file: pb.FileDescriptorProto) -> Symbols:
    """Every message and enumeration of a file by its full name."""
    return dict(_symbols(file, file.package))


def _symbols(holder: Any, scope: str) -> Iterator[tuple[str, pb.DescriptorProto | pb.EnumDescriptorProto]]:
    for message in holder.nested_type if isinstance(holder, pb.DescriptorProto) else holder.message_type:
        name = f"{scope}.{message.name}" if scope else message.name
        yield name, message
        yield from _symbols(message, name)
    for enum in holder.enum_type:
        yield (f"{scope}.{enum.name}" if scope else enum.name), enum


def _collect(
    file: pb.FileDescriptorProto,
    imports: Mapping[str, pb.FileDescriptorProto],
    needed: dict[str, pb.FileDescriptorProto],
    way: tuple[str, ...],
) -> None:
    for name in file.dependency:
        if name in needed:
            continue
        if name in way:
            raise InvalidSchema(f"import {name!r} leads back to itself: {' -> '.join((*way, name))}")
        found = imports.get(name) or builtin(name)
        if found is None:
            raise InvalidSchema(
                f"import {name!r} is not known: register that file and list it in `references` under this name"
            )
        if name not in imports and not name.startswith("google/"):
            found = _linked_builtin(found)
        _collect(found, imports, needed, (*way, name))
        needed[name] = found


def _linked_builtin(file: pb.FileDescriptorProto) -> pb.FileDescriptorProto:
    linked = pb.FileDescriptorProto()
    linked.CopyFrom(file)
    link(linked, {})
    return linked


def _check(file: pb.FileDescriptorProto, needed: Iterable[pb.FileDescriptorProto]) -> None:
    """Protobuf's own checks: numbers and names used twice, enumerations without a zero, and the like."""
    pool = descriptor_pool.DescriptorPool()
    for each in (*needed, file):
        bare = without_custom_options(each)
        try:
            pool.Add(bare)
            pool.FindFileByName(bare.name)
        except (TypeError, KeyError) as error:
            raise InvalidSchema(str(error).removeprefix("Couldn't build proto file into descriptor pool: ")) from None


def without_custom_options(file: pb.FileDescriptorProto) -> pb.FileDescriptorProto:
    bare = pb.FileDescriptorProto()
    bare.CopyFrom(file)
    _strip(bare)
    return bare


def _strip(message: Any) -> None:
    for field, value in message.ListFields():
        if field.name == "uninterpreted_option":
            message.ClearField(field.name)
        elif field.type == field.TYPE_MESSAGE:
            for each in value if field.is_repeated else (value,):
                _strip(each)


class _Linker:
    def __init__(self, file: pb.FileDescriptorProto, symbols: Symbols) -> None:
        self._file = file
        self._symbols = symbols

    def run(self) -> None:
        for message in self._file.message_type:
            self._message(message, self._file.package)
        self._fields(self._file.extension, self._file.package)
        for service in self._file.service:
            for method in service.method:
                place = f"{service.name}.{method.name}"
                method.input_type = "." + self._resolve(method.input_type, self._file.package, place)
                method.output_type = "." + self._resolve(method.output_type, self._file.package, place)

    def _message(self, message: pb.DescriptorProto, scope: str) -> None:
        scope = f"{scope}.{message.name}" if scope else message.name
        self._fields(message.field, scope)
        self._fields(message.extension, scope)
        for nested in message.nested_type:
            self._message(nested, scope)
        for field in message.field:
            if field.proto3_optional and not field.HasField("oneof_index"):
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=_free_name(message, f"_{field.name}"))

    def _fields(self, fields: Iterable[_Field], scope: str) -> None:
        for field in fields:
            if field.extendee:
                field.extendee = "." + self._resolve(field.extendee, scope, field.name)
            if not field.type_name:
                continue
            name = self._resolve(field.type_name, scope, f"{scope}.{field.name}")
            field.type_name = f".{name}"
            if isinstance(self._symbols[name], pb.EnumDescriptorProto):
                field.type = _Field.TYPE_ENUM
            elif field.type != _Field.TYPE_GROUP:
                field.type = _Field.TYPE_MESSAGE

    def _resolve(self, name: str, scope: str, place: str) -> str:
        if name.startswith("."):
            if name[1:] in self._symbols:
                return name[1:]
        else:
            parts = scope.split(".") if scope else []
            for length in range(len(parts), -1, -1):
                candidate = ".".join((*parts[:length], name))
                if candidate in self._symbols:
                    return candidate
        raise InvalidSchema(f'at {place}: "{name}" is not defined, here or in an import')


def _free_name(message: pb.DescriptorProto, name: str) -> str:
    taken = {each.name for each in (*message.field, *message.oneof_decl)}
    while name in taken:
        name = f"X{name}"
    return name
