"""The options `value.format`, `value.schema` and `value.avro.prefix`, and the same for keys."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from tailrace.spark.options.errors import OptionError
from tailrace.spark.values.avro_values import AvroFormat
from tailrace.spark.values.ddl import SchemaError
from tailrace.spark.values.decoded import Format
from tailrace.spark.values.json_values import JsonFormat
from tailrace.spark.values.strings import StringFormat

_FORMATS = ("json", "avro", "protobuf", "string")
_PREFIXES = ("none", "confluent")
_EXAMPLES = {
    "json": "a list of fields such as: id BIGINT, tags ARRAY<STRING>",
    "avro": "an Avro schema in JSON",
}


def parse_format(options: Mapping[str, str], column: str) -> Format | None:
    """None if the column (key or value) stays bytes. Raises OptionError."""
    if (found := _parse_registry_format(options, column)) is not None:
        return found
    name = f"{column}.format"
    schema = options.get(f"{column}.schema")
    prefix = _parse_prefix(options, column)
    if name not in options:
        for other in ("schema", "avro.prefix"):
            if f"{column}.{other}" in options:
                raise OptionError(f"option {column}.{other} needs {name}: one of {', '.join(_FORMATS)}")
        return None
    kind = options[name].strip().lower()
    if kind not in _FORMATS:
        raise OptionError(f"option {name} is {options[name]!r}: {choices_text(kind, _FORMATS)}")
    if kind != "avro" and f"{column}.avro.prefix" in options:
        raise OptionError(f"option {column}.avro.prefix is for {name} avro, and {name} is {kind}")
    if kind == "string":
        if schema is not None:
            raise OptionError(f"option {column}.schema is for json and avro, and {name} is string")
        return StringFormat()
    if schema is None or not schema.strip():
        raise OptionError(f"option {name} is {kind}, which needs {column}.schema: {_EXAMPLES[kind]}")
    try:
        if kind == "json":
            return JsonFormat.parse(schema)
        return AvroFormat.parse(schema, has_confluent_prefix=prefix == "confluent")
    except SchemaError as error:
        raise OptionError(f"option {column}.schema cannot be read: {error}") from None


def _parse_registry_format(options: Mapping[str, str], column: str) -> Format | None:
    """None if no schema registry has a say."""
    if "schemaregistryurl" not in options:
        for other in ("schema.subject", "schema.version", "message"):
            if f"{column}.{other}" in options:
                raise OptionError(f"option {column}.{other} needs schemaRegistryUrl: the address of a schema registry")
        if options.get(f"{column}.format", "").strip().lower() == "protobuf":
            raise OptionError(f"option {column}.format is protobuf, which needs schemaRegistryUrl")
        return None
    from tailrace.spark.options.read import parse_subscription
    from tailrace.spark.values.registry.reading import plan_format
    from tailrace.spark.values.registry.settings import parse_address, parse_wanted

    address = parse_address(options)
    assert address is not None
    wanted = parse_wanted(options, column, address, parse_subscription(options).topics)
    if wanted is None:
        return None
    if f"{column}.avro.prefix" in options:
        raise OptionError(f"option {column}.avro.prefix says nothing beside schemaRegistryUrl: leave it out")
    return plan_format(wanted)


def _parse_prefix(options: Mapping[str, str], column: str) -> str:
    name = f"{column}.avro.prefix"
    prefix = options.get(name, "none").strip().lower()
    if prefix not in _PREFIXES:
        raise OptionError(f"option {name} is {options[name]!r}: {choices_text(prefix, _PREFIXES)}")
    return prefix


def choices_text(found: str, choices: tuple[str, ...]) -> str:
    nearest = get_close_matches(found, choices, n=1)
    return f"did you mean {nearest[0]}?" if nearest else f"expected one of {', '.join(choices)}"
