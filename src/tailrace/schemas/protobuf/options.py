"""Options in a descriptor: those that Protobuf defines are set as fields, custom ones stay as they are written."""

from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from tailrace.schemas.protobuf.lexer import Word

_Name = list[tuple[str, bool]]


def set_field_option(field: pb.FieldDescriptorProto, name: _Name, value: Word) -> None:
    """`default` and `json_name` look like options, and are none."""
    if name == [("default", False)]:
        field.default_value = _default(field, value)
    elif name == [("json_name", False)]:
        field.json_name = value.text
    else:
        add_option(field.options, name, value)


def add_option(options: Any, name: _Name, value: Word) -> None:
    if any(in_parentheses for _, in_parentheses in name):
        _keep(options, name, value)
        return
    message = options
    for part, _ in name[:-1]:
        known = message.DESCRIPTOR.fields_by_name.get(part)
        if known is None or known.type != FieldDescriptor.TYPE_MESSAGE:
            raise ValueError(f"there is no option {'.'.join(each for each, _ in name)}")
        message = getattr(message, part)
    last = name[-1][0]
    known = message.DESCRIPTOR.fields_by_name.get(last)
    if known is None:
        raise ValueError(f"there is no option {'.'.join(each for each, _ in name)}")
    if known.type == FieldDescriptor.TYPE_MESSAGE:
        _merge(getattr(message, last).add() if known.is_repeated else getattr(message, last), last, value)
    elif known.is_repeated:
        getattr(message, last).append(_converted(known, value))
    else:
        setattr(message, last, _converted(known, value))


def _merge(message: Any, name: str, value: Word) -> None:
    if value.kind != "aggregate":
        raise ValueError(f"the option {name} has braces around its value")
    try:
        text_format.Parse(value.text, message)
    except text_format.ParseError as error:
        raise ValueError(f"the option {name}: {error}") from None


def _keep(options: Any, name: _Name, value: Word) -> None:
    kept = options.uninterpreted_option.add()
    for part, in_parentheses in name:
        kept.name.add(name_part=part, is_extension=in_parentheses)
    match value.kind:
        case "aggregate":
            kept.aggregate_value = value.text
        case "string":
            kept.string_value = value.text.encode("latin-1")
        case "name":
            kept.identifier_value = value.text
        case _:
            try:
                number = int(value.text, 0)
            except ValueError:
                kept.double_value = float(value.text.rstrip("fF"))
            else:
                if number < 0:
                    kept.negative_int_value = number
                else:
                    kept.positive_int_value = number


def _converted(known: FieldDescriptor, value: Word) -> Any:
    if known.type == FieldDescriptor.TYPE_BOOL:
        if value.text not in ("true", "false"):
            raise ValueError(f"the option {known.name} is true or false, not {value.text}")
        return value.text == "true"
    if known.type == FieldDescriptor.TYPE_ENUM:
        found = known.enum_type.values_by_name.get(value.text)
        if found is None:
            raise ValueError(f"the option {known.name} has no value {value.text}")
        return found.number
    if known.type == FieldDescriptor.TYPE_STRING:
        if value.kind != "string":
            raise ValueError(f"the option {known.name} is a text in quotes, not {value.text}")
        return value.text.encode("latin-1").decode("utf-8", "replace")
    return int(value.text, 0)


def _default(field: pb.FieldDescriptorProto, value: Word) -> str:
    """As protoc writes it into a descriptor."""
    if field.type in (pb.FieldDescriptorProto.TYPE_STRING, pb.FieldDescriptorProto.TYPE_BYTES):
        if value.kind != "string":
            raise ValueError(f"the default of {field.name} is a text in quotes, not {value.text}")
        raw = value.text.encode("latin-1")
        if field.type == pb.FieldDescriptorProto.TYPE_STRING:
            return raw.decode("utf-8", "replace")
        return escaped(raw)
    if value.kind == "number" and field.type not in (
        pb.FieldDescriptorProto.TYPE_FLOAT,
        pb.FieldDescriptorProto.TYPE_DOUBLE,
    ):
        text = value.text
        return str(int(text, 8) if text.lstrip("-").startswith("0") and text.lstrip("-").isdigit() else int(text, 0))
    if value.kind == "number":
        number = repr(float(value.text.rstrip("fF")))
        return number.removesuffix(".0")
    return value.text


def escaped(raw: bytes) -> str:
    """Bytes as C writes them in a string."""
    plain = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}
    return "".join(plain.get(each) or (chr(each) if 32 <= each < 127 else f"\\{each:03o}") for each in raw)
