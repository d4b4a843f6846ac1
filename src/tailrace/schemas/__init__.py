"""Schemas of messages: Avro, JSON Schema and Protobuf, parsed, written in one form, and compared for compatibility.

`parse` gives a `ParsedSchema` or raises `InvalidSchema`; `check` says why one may not follow others. All of it is pure:
no clock, no file, no network. What a schema refers to is handed to `parse` by the name that the schema uses.
"""

from collections.abc import Mapping

from tailrace.schemas.levels import LEVELS, check
from tailrace.schemas.limits import DEFAULT_LIMITS, Limits
from tailrace.schemas.parsed import AVRO, JSON, PROTOBUF, Incompatibility, InvalidSchema, ParsedSchema

__all__ = [
    "AVRO",
    "JSON",
    "LEVELS",
    "PROTOBUF",
    "Incompatibility",
    "InvalidSchema",
    "Limits",
    "ParsedSchema",
    "check",
    "parse",
]


def parse(
    schema_type: str, text: str, references: Mapping[str, ParsedSchema], limits: Limits = DEFAULT_LIMITS
) -> ParsedSchema:
    """The schema of a text. `references` has each schema that it refers to, by the name under which it does so."""
    for name, referenced in references.items():
        if referenced.schema_type != schema_type:
            raise InvalidSchema(f"the reference {name!r} is {referenced.schema_type}, and the schema is {schema_type}")
    try:
        if schema_type == AVRO:
            from tailrace.schemas.avro.schema import AvroSchema

            return AvroSchema(text, references, limits)
        if schema_type == JSON:
            from tailrace.schemas.json_schema.schema import JsonSchema

            return JsonSchema(text, references, limits)
        if schema_type == PROTOBUF:
            from tailrace.schemas.protobuf.schema import ProtobufSchema

            return ProtobufSchema(text, references, limits)
    except RecursionError:
        raise InvalidSchema("nested too deeply: name the inner types and refer to them") from None
    raise InvalidSchema(f"{schema_type!r} is not a type of schema: use AVRO, JSON or PROTOBUF")
