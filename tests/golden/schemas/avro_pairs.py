"""Every pair of these Avro types as reader and writer, and named cases; Avro's own package judges the verdicts.

The reasons stand here: the rule that Java's SchemaCompatibility names for a pair of kinds.
"""

import json


def record(name, *fields, **more):
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type", "default"), each, strict=False)) for each in fields],
        **more,
    }


def enum(*symbols, **more):
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size, name="F"):
    return {"type": "fixed", "name": name, "size": size}


TYPES = {
    **{name: name for name in ("null", "boolean", "int", "long", "float", "double", "bytes", "string")},
    "date": {"type": "int", "logicalType": "date"},
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    "fixed 4": fixed(4),
    "fixed 8": fixed(8),
    "fixed 4 by another name": fixed(4, "G"),
    "enum AB": enum("A", "B"),
    "enum ABC": enum("A", "B", "C"),
    "enum A": enum("A"),
    "array of int": {"type": "array", "items": "int"},
    "array of long": {"type": "array", "items": "long"},
    "map of int": {"type": "map", "values": "int"},
    "map of string": {"type": "map", "values": "string"},
    "record a": record("R", ("a", "int")),
    "record a b": record("R", ("a", "int"), ("b", "string")),
    "record a b=": record("R", ("a", "int"), ("b", "string", "")),
    "record a:long": record("R", ("a", "long")),
    "record by another name": record("S", ("a", "int")),
    "null or int": ["null", "int"],
    "null or int or string": ["null", "int", "string"],
    "only int": ["int"],
}

# What the rule is called where two of a kind do not fit; a union and everything else are said below.
_SAME_KIND = {
    ("fixed", "size"): "FIXED_SIZE_MISMATCH",
    ("fixed", "name"): "NAME_MISMATCH",
    ("record", "name"): "NAME_MISMATCH",
    ("enum", "symbols"): "MISSING_ENUM_SYMBOLS",
    ("record", "default"): "READER_FIELD_MISSING_DEFAULT_VALUE",
    ("record", "type"): "TYPE_MISMATCH",
    ("array", "type"): "TYPE_MISMATCH",
    ("map", "type"): "TYPE_MISMATCH",
}


def pairs():
    """(name, reader, writer, the rules that may be named if they do not fit)."""
    for reader_name, reader in TYPES.items():
        for writer_name, writer in TYPES.items():
            yield f"{reader_name} reads {writer_name}", json.dumps(reader), json.dumps(writer), _rules(reader, writer)


def _rules(reader, writer):
    if isinstance(reader, list):
        return {"MISSING_UNION_BRANCH"}
    if isinstance(writer, list):
        return set().union(*(_rules(reader, branch) for branch in writer))
    if _kind(reader) != _kind(writer):
        return {"TYPE_MISMATCH"}
    return {rule for (kind, _), rule in _SAME_KIND.items() if kind == _kind(reader)}


def _kind(given):
    return given["type"] if isinstance(given, dict) else given


# name, reader, writer, rule or None, path: what aliases, defaults, nesting and names in spaces do.
NAMED = [
    (
        "an alias of a field",
        record("R", ("b", "int")),
        record("R", ("a", "int")),
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        "/fields/0",
    ),
    (
        "an alias of a field that fits",
        {"type": "record", "name": "R", "fields": [{"name": "b", "type": "int", "aliases": ["a"]}]},
        record("R", ("a", "int")),
        None,
        "",
    ),
    (
        "an alias of a field of another type",
        {"type": "record", "name": "R", "fields": [{"name": "b", "type": "int", "aliases": ["a"]}]},
        record("R", ("a", "string")),
        "TYPE_MISMATCH",
        "/fields/0/type",
    ),
    ("an alias of a record", record("S", ("a", "int"), aliases=["R"]), record("R", ("a", "int")), None, ""),
    ("a new name of a record", record("S", ("a", "int")), record("R", ("a", "int")), "NAME_MISMATCH", "/name"),
    ("another namespace", record("x.R", ("a", "int")), record("y.R", ("a", "int")), None, ""),
    ("an enum with a default", enum("A", default="A"), enum("A", "B"), None, ""),
    ("an enum without one", enum("A"), enum("A", "B", "C"), "MISSING_ENUM_SYMBOLS", "/symbols"),
    ("a field that is gone", record("R", ("a", "int")), record("R", ("a", "int"), ("b", "int")), None, ""),
    ("null as a default", record("R", ("a", ["null", "int"], None)), record("R"), None, ""),
    (
        "a union without a default",
        record("R", ("a", ["null", "int"])),
        record("R"),
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        "/fields/0",
    ),
    ("a wider union", record("R", ("a", ["null", "int", "string"])), record("R", ("a", ["null", "int"])), None, ""),
    (
        "a narrower union",
        record("R", ("a", ["null", "int"])),
        record("R", ("a", ["null", "int", "string"])),
        "MISSING_UNION_BRANCH",
        "/fields/0/type/2",
    ),
    ("a union of one that becomes plain", record("R", ("a", "int")), record("R", ("a", ["int"])), None, ""),
    ("a union that is promoted", record("R", ("a", "double")), record("R", ("a", ["int", "float"])), None, ""),
    (
        "a union that becomes plain",
        record("R", ("a", "int")),
        record("R", ("a", ["null", "int"])),
        "TYPE_MISMATCH",
        "/fields/0/type",
    ),
    ("plain that becomes a union", record("R", ("a", ["null", "long"])), record("R", ("a", "int")), None, ""),
    (
        "deep inside",
        record("R", ("a", {"type": "array", "items": {"type": "map", "values": "int"}})),
        record("R", ("a", {"type": "array", "items": {"type": "map", "values": "string"}})),
        "TYPE_MISMATCH",
        "/fields/0/type/items/values",
    ),
    (
        "an inner record",
        record("R", ("a", record("I", ("x", "int"), ("y", "int")))),
        record("R", ("a", record("I", ("x", "int")))),
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        "/fields/0/type/fields/1",
    ),
]
