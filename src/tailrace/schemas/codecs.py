"""Values with a schema as JSON, for people: what `tailrace consume` shows and `tailrace produce` takes.

Avro values are plain JSON (bytes as Latin-1 text, as in Avro's own JSON; logical types as the number below them). Where
they are written, unions may be wrapped as in Avro's own JSON: {"string": "a"} for "a". Protobuf values are Protobuf's
own JSON. Values of a JSON Schema are what they are.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import Any

from tailrace.schemas.framing import read_indexes, write_indexes
from tailrace.schemas.parsed import AVRO, JSON, ParsedSchema


class CodecError(ValueError):
    """A value does not fit its schema; the message says why."""


# What fastavro raises for a value that does not fit.
_MISFITS = (LookupError, ArithmeticError, ValueError, TypeError, AttributeError)

Decode = Callable[[bytes], str]
Encode = Callable[[str], bytes]


def decoder(schema: ParsedSchema) -> Decode:
    """From the data behind the prefix to JSON. Raises CodecError when it is called."""
    if schema.schema_type == AVRO:
        return _avro_decoder(schema)
    if schema.schema_type == JSON:
        return lambda data: data.decode()
    return _protobuf_decoder(schema)


def encoder(schema: ParsedSchema, message: str | None = None) -> Encode:
    """From JSON to the data behind the prefix. `message`: which one of a Protobuf file, else the first."""
    if schema.schema_type == AVRO:
        return _avro_encoder(schema)
    if schema.schema_type == JSON:
        return _json_bytes
    return _protobuf_encoder(schema, message)


def message_classes(schema: ParsedSchema) -> dict[str, Any]:
    """The classes of all messages of a Protobuf schema, by full name."""
    from google.protobuf import descriptor_pool, message_factory

    from tailrace.schemas.protobuf.linker import symbols_of, without_custom_options
    from tailrace.schemas.protobuf.schema import ProtobufSchema

    assert isinstance(schema, ProtobufSchema)
    pool = descriptor_pool.DescriptorPool()
    for file in (*schema.needed.values(), schema.file):
        pool.Add(without_custom_options(file))
    messages = [name for name, found in symbols_of(schema.file).items() if hasattr(found, "field")]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in messages}


def message_name(schema: ParsedSchema, indexes: tuple[int, ...]) -> str:
    """The full name of the message at these indexes. Raises CodecError."""
    from tailrace.schemas.protobuf.schema import ProtobufSchema

    assert isinstance(schema, ProtobufSchema)
    holders: Any = schema.file.message_type
    names = [schema.file.package] if schema.file.package else []
    for index in indexes:
        if not 0 <= index < len(holders):
            raise CodecError(f"its schema has no message at {list(indexes)}")
        names.append(holders[index].name)
        holders = holders[index].nested_type
    return ".".join(names)


def message_indexes(schema: ParsedSchema, name: str) -> tuple[int, ...]:
    """Where a message stands in its file. Raises CodecError."""
    from tailrace.schemas.protobuf.schema import ProtobufSchema

    assert isinstance(schema, ProtobufSchema)
    prefix = f"{schema.file.package}." if schema.file.package else ""
    holders: Any = schema.file.message_type
    indexes = []
    for part in name.removeprefix(prefix).split("."):
        index = next((at for at, each in enumerate(holders) if each.name == part), None)
        if index is None:
            raise CodecError(f"the schema has no message {name}")
        indexes.append(index)
        holders = holders[index].nested_type
    return tuple(indexes)


def fastavro_schema(schema: ParsedSchema, *, logical: bool = True) -> Any:
    """As fastavro takes it, with the types of references written out."""
    from fastavro import parse_schema

    found = json.loads(schema.formatted("resolved"))
    return parse_schema(found if logical else _without_logical(found))


def _avro_decoder(schema: ParsedSchema) -> Decode:
    from fastavro import schemaless_reader

    written_by = fastavro_schema(schema, logical=False)

    def decode(data: bytes) -> str:
        stream = BytesIO(data)
        try:
            value = schemaless_reader(stream, written_by, None)
        except (EOFError, LookupError, ArithmeticError, ValueError, TypeError) as error:
            raise CodecError(f"it is not of its Avro schema: {error!r}") from None
        if left := len(data) - stream.tell():
            raise CodecError(f"it is not of its Avro schema: {left} bytes are left over")
        return json.dumps(value, ensure_ascii=False, default=_latin)

    return decode


def _avro_encoder(schema: ParsedSchema) -> Encode:
    from fastavro import schemaless_writer

    to_write = fastavro_schema(schema, logical=False)
    plain, wrapped = (_AvroValues(to_write, has_wrapped_unions=each) for each in (False, True))

    def written(value: Any, values: _AvroValues) -> bytes:
        stream = BytesIO()
        schemaless_writer(stream, to_write, values.read(to_write, value), strict_allow_default=True)
        return stream.getvalue()

    def encode(text: str) -> bytes:
        value = _loaded(text)
        try:
            return written(value, plain)
        except _MISFITS as error:
            with suppress(*_MISFITS):
                return written(value, wrapped)
            raise CodecError(f"it does not fit the Avro schema: {error}") from None

    return encode


def _protobuf_decoder(schema: ParsedSchema) -> Decode:
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError

    classes = message_classes(schema)

    def decode(data: bytes) -> str:
        indexes, start = read_indexes(data, 0)
        message = classes[message_name(schema, indexes)]()
        try:
            message.ParseFromString(data[start:])
            return str(json_format.MessageToJson(message, indent=None, preserving_proto_field_name=True))
        except (DecodeError, json_format.Error) as error:
            raise CodecError(f"it is not of its Protobuf schema: {error}") from None

    return decode


def _protobuf_encoder(schema: ParsedSchema, name: str | None) -> Encode:
    from google.protobuf import json_format

    chosen = message_name(schema, (0,)) if name is None else name
    prefix = write_indexes(message_indexes(schema, chosen))
    found = message_classes(schema)[chosen]

    def encode(text: str) -> bytes:
        try:
            return prefix + bytes(json_format.Parse(text, found()).SerializeToString())
        except json_format.Error as error:
            raise CodecError(f"it does not fit the Protobuf schema: {error}") from None

    return encode


def _json_bytes(text: str) -> bytes:
    _loaded(text)
    return text.encode()


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CodecError(f"it is not JSON: {error}") from None


def _latin(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical(each) for each in schema]
    if isinstance(schema, dict):
        kept = {key: _without_logical(each) for key, each in schema.items() if key not in ("logicalType", "default")}
        return kept | ({"default": schema["default"]} if "default" in schema else {})
    return schema


class _AvroValues:
    """Values of JSON as fastavro takes them: bytes where the schema wants them, and whose branch of a union it is where
    they say so."""

    def __init__(self, schema: Any, *, has_wrapped_unions: bool) -> None:
        self._has_wrapped_unions = has_wrapped_unions
        self._names: dict[str, Any] = {}
        self._learn_names(schema)

    def _learn_names(self, schema: Any) -> None:
        if isinstance(schema, list):
            for each in schema:
                self._learn_names(each)
        elif isinstance(schema, dict):
            if "name" in schema:
                self._names[schema["name"]] = schema
            for inner in ("items", "values"):
                self._learn_names(schema.get(inner))
            for each in schema.get("fields", ()):
                self._learn_names(each["type"])

    def read(self, schema: Any, value: Any) -> Any:
        if isinstance(schema, str):
            schema = self._names.get(schema, {"type": schema})
        if isinstance(schema, list):
            return self._of_union(schema, value)
        match schema["type"], value:
            case "record" | "error", dict():
                types = {each["name"]: each["type"] for each in schema["fields"]}
                return {key: self.read(types[key], each) if key in types else each for key, each in value.items()}
            case "array", list():
                return [self.read(schema["items"], each) for each in value]
            case "map", dict():
                return {key: self.read(schema["values"], each) for key, each in value.items()}
            case "fixed" | "bytes", str():
                return value.encode("latin-1")
        return value

    def _of_union(self, branches: list[Any], value: Any) -> Any:
        if self._has_wrapped_unions and isinstance(value, dict) and len(value) == 1:
            (name, inner), *_ = value.items()
            for each in branches:
                if name == (each if isinstance(each, str) else each.get("name", each["type"])):
                    return name, self.read(each, inner)
        if isinstance(value, str) and "string" in branches:
            return value
        for each in branches:
            found = self._names.get(each, {"type": each}) if isinstance(each, str) else each
            if isinstance(value, _IN_JSON.get(found["type"], ())):
                return self.read(found, value)
        return value


_IN_JSON: dict[str, type] = {"record": dict, "error": dict, "map": dict, "array": list, "fixed": str, "bytes": str}
