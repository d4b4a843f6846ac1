"""Confluent's rules for Protobuf: can a message of an earlier schema be read with a later one?

Fields are the same if their numbers are, wherever they stand in a message. Paths are `#/Message/Inner/3`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as _Field

from tailrace.schemas.parsed import Difference, names
from tailrace.schemas.protobuf.printer import map_entry

_Path = tuple[str, ...]
_Found = list[tuple[str, _Path]]

COMPATIBLE = names(
    """
    MESSAGE_ADDED MESSAGE_MOVED ENUM_ADDED ENUM_REMOVED ENUM_CONST_ADDED ENUM_CONST_CHANGED ENUM_CONST_REMOVED
    FIELD_ADDED FIELD_REMOVED FIELD_NAME_CHANGED FIELD_STRING_OR_BYTES_LABEL_CHANGED
    ONEOF_ADDED ONEOF_REMOVED ONEOF_FIELD_ADDED ONEOF_FIELD_MOVED_TO_TOP_LEVEL
    """
)

# Types whose bytes are the same on the wire.
_WIRE = {
    **dict.fromkeys(
        (_Field.TYPE_INT32, _Field.TYPE_INT64, _Field.TYPE_UINT32, _Field.TYPE_UINT64, _Field.TYPE_BOOL), "varint"
    ),
    _Field.TYPE_ENUM: "varint",
    **dict.fromkeys((_Field.TYPE_SINT32, _Field.TYPE_SINT64), "zigzag"),
    **dict.fromkeys((_Field.TYPE_STRING, _Field.TYPE_BYTES), "text"),
    **dict.fromkeys((_Field.TYPE_FIXED32, _Field.TYPE_SFIXED32), "fixed32"),
    **dict.fromkeys((_Field.TYPE_FIXED64, _Field.TYPE_SFIXED64), "fixed64"),
    _Field.TYPE_FLOAT: "float",
    _Field.TYPE_DOUBLE: "double",
}

_SAME_BYTES = (
    "keep a type with the same bytes (int32, int64, uint32, uint64, bool and enums; sint32 and sint64; string and "
    "bytes; fixed32 and sfixed32; fixed64 and sfixed64), or add a field with a new number"
)
# The text, and what would pass: for the author of the reader, and of the writer.
_TOLD = {
    "PACKAGE_CHANGED": (
        "The package at '{path}' in the %s schema does not match the package in the %s schema",
        "keep the package",
        "keep the package",
    ),
    "MESSAGE_REMOVED": (
        "The %s schema is missing a MESSAGE type at path '{path}' in the %s schema",
        "keep the message, or register it under a subject of its own and import it",
        "leave the message out until readers know it, or put it into a file of its own and import it",
    ),
    "FIELD_KIND_CHANGED": (
        "The type of a field at path '{path}' in the %s schema does not match the %s schema",
        "keep the type, and add a field with a new number for the other one",
        "keep the type, and add a field with a new number for the other one",
    ),
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '{path}' in the %s schema does not match its kind in the %s schema",
        _SAME_BYTES,
        "keep a type with the same bytes, or add a field with a new number",
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '{path}' in the %s schema does not match its type in the %s schema",
        "keep the type, and add a field with a new number for the other one",
        "keep the type, and add a field with a new number for the other one",
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '{path}' in the %s schema does not match its label in the %s schema",
        "keep the label, and add a repeated field with a new number",
        "keep the label, and add a repeated field with a new number",
    ),
    "REQUIRED_FIELD_ADDED": (
        "A required field  at path '{path}' in the %s schema is missing in the %s schema",
        "make the field optional",
        "keep the field: readers of the old schema require it",
    ),
    "REQUIRED_FIELD_REMOVED": (
        "The %s schema is missing a required field at path: '{path}' in the %s schema",
        "keep the field",
        "make the field optional",
    ),
    "ONEOF_FIELD_REMOVED": (
        "The %s schema is missing a oneof field at path '{path}' in the %s schema",
        "keep the field in its oneof: without it nobody sees which one was set",
        "leave the field out of the oneof until readers know it",
    ),
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '{path}' in the %s schema are outside a oneof in the %s schema",
        "leave the fields outside of the oneof: both may have been set",
        "keep the fields in their oneof: readers of the old schema keep only one of them",
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '{path}' in the %s schema is outside an existing oneof in the %s schema",
        "leave the field outside of the oneof: it may have been set beside another",
        "keep the field in its oneof: readers of the old schema keep only one of them",
    ),
}


def told(rule: str, path: _Path) -> Difference:
    text, for_reader, for_writer = _TOLD[rule]
    place = "#/" + "/".join(path)
    message = f'{{errorType:"{rule}", description:"{text.format(path=place)}"}}'
    return Difference(rule, place, message, for_reader, for_writer)


@dataclass(frozen=True)
class Side:
    """A linked file, and every type that it can name: with its package, and whether it comes from an import."""

    file: pb.FileDescriptorProto
    types: dict[str, tuple[Any, str, bool]]


def compare(original: Side, update: Side) -> _Found:
    found: _Found = []
    if original.file.package != update.file.package:
        found.append(("PACKAGE_CHANGED", ()))
    return found + _Comparison(original, update).types(original.file, update.file, ())


class _Comparison:
    def __init__(self, original: Side, update: Side) -> None:
        self._original, self._update = original, update
        self._under_way: set[tuple[int, int]] = set()

    def types(self, original: Any, update: Any, path: _Path) -> _Found:
        """Messages and enumerations that stand side by side, in a file or in a message."""
        found: _Found = []
        before, after = _messages(original), _messages(update)
        for name in dict.fromkeys((*before, *after)):
            here = (*path, name)
            if name not in after:
                found.append(("MESSAGE_REMOVED", here))
            elif name not in before:
                found.append(("MESSAGE_ADDED", here))
            else:
                found += self._messages(before[name], after[name], here)
                if list(before).index(name) != list(after).index(name):
                    found.append(("MESSAGE_MOVED", here))
        old, new = ({each.name: each for each in holder.enum_type} for holder in (original, update))
        for name in dict.fromkeys((*old, *new)):
            here = (*path, name)
            if name not in new:
                found.append(("ENUM_REMOVED", here))
            elif name not in old:
                found.append(("ENUM_ADDED", here))
            else:
                found += _enums(old[name], new[name], here)
        return found

    def _messages(self, original: pb.DescriptorProto, update: pb.DescriptorProto, path: _Path) -> _Found:
        pair = (id(original), id(update))
        if pair in self._under_way:
            return []
        self._under_way.add(pair)
        found = self._fields(original, update, path) + self.types(original, update, path)
        self._under_way.discard(pair)
        return found

    def _fields(self, original: pb.DescriptorProto, update: pb.DescriptorProto, path: _Path) -> _Found:
        before = {field.number: field for field in original.field}
        after = {field.number: field for field in update.field}
        old_oneofs, new_oneofs = _oneofs(original), _oneofs(update)
        old_home = {number: name for name, numbers in old_oneofs.items() for number in numbers}
        new_home = {number: name for name, numbers in new_oneofs.items() for number in numbers}
        found = list(_exclusive(new_oneofs, before, old_home, path))
        found += [("ONEOF_REMOVED", (*path, name)) for name in sorted(old_oneofs.keys() - new_oneofs.keys())]
        found += [("ONEOF_ADDED", (*path, name)) for name in sorted(new_oneofs.keys() - old_oneofs.keys())]
        # A oneof that went with all of its fields is no loss that a reader could notice.
        gone = {name for name, numbers in old_oneofs.items() if name not in new_oneofs and not after.keys() & numbers}
        for number in sorted({*before, *after}):
            old_one, new_one = old_home.get(number), new_home.get(number)
            if number not in after:
                if old_one is None:
                    required = _label(before[number], self._original.file) == "required"
                    found.append(("REQUIRED_FIELD_REMOVED" if required else "FIELD_REMOVED", (*path, str(number))))
                elif old_one not in gone:
                    found.append(("ONEOF_FIELD_REMOVED", (*path, old_one, str(number))))
            elif number not in before:
                if new_one is not None:
                    found.append(("ONEOF_FIELD_ADDED", (*path, new_one, str(number))))
                else:
                    required = _label(after[number], self._update.file) == "required"
                    found.append(("REQUIRED_FIELD_ADDED" if required else "FIELD_ADDED", (*path, str(number))))
            else:
                if old_one is not None and new_one is None:
                    found.append(("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", (*path, str(number))))
                here = (*path, *((new_one,) if new_one is not None else ()), str(number))
                if before[number].name != after[number].name:
                    found.append(("FIELD_NAME_CHANGED", here))
                found += self._kinds(before[number], after[number], original, update, here, labels=True)
        return found

    def _kinds(self, old: _Field, new: _Field, original: Any, update: Any, path: _Path, *, labels: bool) -> _Found:
        old_entry, new_entry = map_entry(old, original.nested_type), map_entry(new, update.nested_type)
        old_kind, new_kind = _kind(old, old_entry), _kind(new, new_entry)
        if old_kind != new_kind:
            return [("FIELD_KIND_CHANGED", path)]
        if old_entry is not None and new_entry is not None:
            keys = self._kinds(old_entry.field[0], new_entry.field[0], original, update, path, labels=False)
            return keys + self._kinds(old_entry.field[1], new_entry.field[1], original, update, path, labels=False)
        if old_kind == "message":
            return self._named(old, new, path)
        if _WIRE[old.type] != _WIRE[new.type]:
            return [("FIELD_SCALAR_KIND_CHANGED", path)]
        old_label, new_label = _label(old, self._original.file), _label(new, self._update.file)
        if labels and old_label and new_label and old_label != new_label:
            kind = "STRING_OR_BYTES" if _WIRE[old.type] == "text" else "NUMERIC"
            return [(f"FIELD_{kind}_LABEL_CHANGED", path)]
        return []

    def _named(self, old: _Field, new: _Field, path: _Path) -> _Found:
        old_type, old_package, old_imported = self._original.types[old.type_name[1:]]
        new_type, new_package, new_imported = self._update.types[new.type_name[1:]]
        old_local = old.type_name[1:].removeprefix(f"{old_package}.")
        if old_local != new.type_name[1:].removeprefix(f"{new_package}."):
            return [("FIELD_NAMED_TYPE_CHANGED", path)]
        if not (old_imported or new_imported):
            return []  # it is compared where it is defined
        inside = self._messages(old_type, new_type, tuple(old_local.split(".")))
        return inside if is_compatible(inside) else [*inside, ("FIELD_NAMED_TYPE_CHANGED", path)]


def is_compatible(found: _Found) -> bool:
    return all(rule in COMPATIBLE for rule, _ in found)


def _exclusive(
    oneofs: dict[str, list[int]], before: dict[int, _Field], old_home: dict[int, str], path: _Path
) -> Iterator[tuple[str, _Path]]:
    """Fields that could be set together, and now cannot."""
    for name, numbers in oneofs.items():
        known = [number for number in numbers if number in before]
        groups = {old_home.get(number, str(number)) for number in known}
        if len(groups) > 1:
            several = sum(number not in old_home for number in known) > 1
            yield ("MULTIPLE_FIELDS_MOVED_TO_ONEOF" if several else "FIELD_MOVED_TO_EXISTING_ONEOF"), (*path, name)


def _messages(holder: Any) -> dict[str, pb.DescriptorProto]:
    found: Iterable[pb.DescriptorProto] = (
        holder.message_type if isinstance(holder, pb.FileDescriptorProto) else holder.nested_type
    )
    return {each.name: each for each in found if not each.options.map_entry}


def _oneofs(message: pb.DescriptorProto) -> dict[str, list[int]]:
    """The numbers of the fields of each oneof that somebody wrote."""
    found: dict[str, list[int]] = {}
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            found.setdefault(message.oneof_decl[field.oneof_index].name, []).append(field.number)
    return found


def _enums(old: pb.EnumDescriptorProto, new: pb.EnumDescriptorProto, path: _Path) -> _Found:
    before = {value.number: value.name for value in old.value}
    after = {value.number: value.name for value in new.value}
    found: _Found = []
    for number in sorted({*before, *after}):
        here = (*path, str(number))
        if number not in after:
            found.append(("ENUM_CONST_REMOVED", here))
        elif number not in before:
            found.append(("ENUM_CONST_ADDED", here))
        elif before[number] != after[number]:
            found.append(("ENUM_CONST_CHANGED", here))
    return found


def _kind(field: _Field, entry: pb.DescriptorProto | None) -> str:
    if entry is not None:
        return "map"
    return "message" if field.type in (_Field.TYPE_MESSAGE, _Field.TYPE_GROUP) else "scalar"


def _label(field: _Field, file: pb.FileDescriptorProto) -> str:
    """The label that stands in the text; none is ''."""
    if field.label == _Field.LABEL_REPEATED:
        return "repeated"
    if file.syntax == "editions":
        return "required" if field.options.features.field_presence == pb.FeatureSet.LEGACY_REQUIRED else ""
    if field.proto3_optional:
        return "optional"
    if file.syntax == "proto3" or field.HasField("oneof_index"):
        return ""
    return "required" if field.label == _Field.LABEL_REQUIRED else "optional"
