"""Changes of a Protobuf schema by Confluent's published rules, and of every scalar type to every other."""

HEAD = 'syntax = "proto3"; package p; '
OLD = 'syntax = "proto2"; package p; '
# Types whose bytes can be read as each other's, as Protobuf's guide says.
GROUPS = [
    ["int32", "int64", "uint32", "uint64", "bool", "Color"],
    ["sint32", "sint64"],
    ["string", "bytes"],
    ["fixed32", "sfixed32"],
    ["fixed64", "sfixed64"],
    ["float"],
    ["double"],
]
COLOR = " enum Color { RED = 0; }"
OTHER = " message Other { int32 x = 1; }"


def _one(body, head=HEAD):
    return f"{head}message M {{ {body} }}"


def _scalars():
    types = [each for group in GROUPS for each in group]
    for before in types:
        for after in types:
            same = any(before in group and after in group for group in GROUPS)
            original, update = (_one(f"{each} f = 1;") + COLOR for each in (before, after))
            yield f"{before} to {after}", original, update, "FIELD_SCALAR_KIND_CHANGED", "#/M/1", same


def _fields():
    yield "a field more", _one(""), _one("int32 a = 1;"), "FIELD_ADDED", "", True
    yield "a field less", _one("int32 a = 1;"), _one(""), "FIELD_REMOVED", "", True
    yield "another name", _one("int32 a = 1;"), _one("int32 b = 1;"), "FIELD_NAME_CHANGED", "", True
    yield (
        "a required field more",
        _one("", OLD),
        _one("required int32 a = 1;", OLD),
        "REQUIRED_FIELD_ADDED",
        "#/M/1",
        False,
    )
    yield (
        "a required field less",
        _one("required int32 a = 1;", OLD),
        _one("", OLD),
        "REQUIRED_FIELD_REMOVED",
        "#/M/1",
        False,
    )
    rule = "FIELD_NUMERIC_LABEL_CHANGED"
    for kind in ("int32", "sint64", "fixed32", "fixed64", "float", "double"):
        one, many = (_one(f"{label} {kind} a = 1;", OLD) for label in ("optional", "repeated"))
        yield f"repeated {kind}", one, many, rule, "#/M/1", False
        yield f"no longer repeated {kind}", many, one, rule, "#/M/1", False
    for kind in ("string", "bytes"):
        one, many = (_one(f"{label} {kind} a = 1;", OLD) for label in ("optional", "repeated"))
        yield f"repeated {kind}", one, many, "FIELD_STRING_OR_BYTES_LABEL_CHANGED", "", True
    for kind, written in (("a message", "Other a = 1;"), ("a map", "map<string, int32> a = 1;")):
        for scalar in ("int32", "string", "Color"):
            plain = _one(f"{scalar} a = 1;") + COLOR + OTHER
            yield f"{scalar} to {kind}", plain, _one(written) + COLOR + OTHER, "FIELD_KIND_CHANGED", "#/M/1", False
            yield f"{kind} to {scalar}", _one(written) + COLOR + OTHER, plain, "FIELD_KIND_CHANGED", "#/M/1", False
    maps = [
        _one(f"map<{key}, {value}> a = 1;")
        for key, value in (("string", "int32"), ("string", "int64"), ("string", "string"))
    ]
    yield "the value of a map to one with the same bytes", maps[0], maps[1], "", "", True
    yield "the value of a map to one with others", maps[0], maps[2], "FIELD_SCALAR_KIND_CHANGED", "#/M/1", False
    keyed = _one("map<fixed32, int32> a = 1;")
    yield "the key of a map", maps[0], keyed, "FIELD_SCALAR_KIND_CHANGED", "#/M/1", False
    others = OTHER + OTHER.replace("Other", "Another")
    first, second = (_one(f"{name} a = 1;") + others for name in ("Other", "Another"))
    yield "another message", first, second, "FIELD_NAMED_TYPE_CHANGED", "#/M/1", False


def _oneofs():
    apart, alone = _one("int32 a = 1; int32 b = 2;"), _one("int32 a = 1;")
    together, single = _one("oneof o { int32 a = 1; int32 b = 2; }"), _one("oneof o { int32 a = 1; }")
    yield "two fields into a oneof", apart, together, "MULTIPLE_FIELDS_MOVED_TO_ONEOF", "#/M/o", False
    yield "one field into a new oneof", alone, single, "ONEOF_ADDED", "", True
    mixed = _one("oneof o { int32 a = 1; } int32 b = 2;")
    yield "a field into a oneof that was there", mixed, together, "FIELD_MOVED_TO_EXISTING_ONEOF", "#/M/o", False
    yield "a field more in a oneof", single, together, "ONEOF_FIELD_ADDED", "", True
    yield "a field less in a oneof", together, single, "ONEOF_FIELD_REMOVED", "#/M/o/2", False
    yield "a oneof gone with its fields", together, _one(""), "ONEOF_REMOVED", "", True
    yield "out of a oneof", together, apart, "ONEOF_FIELD_MOVED_TO_TOP_LEVEL", "", True
    yield "a oneof by another name", together, together.replace("oneof o", "oneof q"), "", "", True
    changed = together.replace("int32 b", "string b")
    yield "a type inside of a oneof", together, changed, "FIELD_SCALAR_KIND_CHANGED", "#/M/o/2", False


def _types():
    one, two = _one(""), _one("") + OTHER
    yield "a message more", one, two, "MESSAGE_ADDED", "", True
    yield "a message less", two, one, "MESSAGE_REMOVED", "#/Other", False
    yield "messages in another order", two, HEAD + OTHER.strip() + " message M { }", "MESSAGE_MOVED", "", True
    yield "an inner message less", _one("message I { }"), one, "MESSAGE_REMOVED", "#/M/I", False
    inner, changed = (_one(f"message I {{ {kind} x = 3; }}") for kind in ("int32", "float"))
    yield "inside of an inner message", inner, changed, "FIELD_SCALAR_KIND_CHANGED", "#/M/I/3", False
    yield "another package", one, one.replace("package p", "package q"), "PACKAGE_CHANGED", "#/", False
    yield "an enum more", one, one + COLOR, "ENUM_ADDED", "", True
    yield "an enum less", one + COLOR, one, "ENUM_REMOVED", "", True
    wide = COLOR.replace("RED = 0;", "RED = 0; BLUE = 1;")
    yield "a constant more", one + COLOR, one + wide, "ENUM_CONST_ADDED", "", True
    yield "a constant less", one + wide, one + COLOR, "ENUM_CONST_REMOVED", "", True
    yield "a constant by another name", one + COLOR, one + COLOR.replace("RED", "ROUGE"), "ENUM_CONST_CHANGED", "", True


def pairs():
    """(name, original, update, rule, path, whether it is compatible)."""
    yield from _scalars()
    yield from _fields()
    yield from _oneofs()
    yield from _types()
