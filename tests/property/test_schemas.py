"""What compatibility promises, on generated schemas: the levels add up, a compatible reader reads what was written."""

import io
import json

import fastavro
from google.protobuf import descriptor_pool, message_factory
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tailrace.schemas import check, parse
from tailrace.schemas.protobuf.linker import without_custom_options

PRIMITIVES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=5),
    # Bytes that are text: a reader may ask for a string, and Avro promises nothing of others then.
    "bytes": st.text(max_size=5).map(str.encode),
}
DEFAULTS = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 1.5,
    "double": 2.5,
    "string": "s",
    "bytes": "b",
}


@st.composite
def avro_types(draw, depth=2):
    kind = draw(st.sampled_from([*PRIMITIVES, *(["array", "map", "union", "enum"] if depth else [])]))
    if kind == "array":
        return {"type": "array", "items": draw(avro_types(depth=depth - 1))}
    if kind == "map":
        return {"type": "map", "values": draw(avro_types(depth=depth - 1))}
    if kind == "union":
        return draw(st.lists(st.sampled_from(list(PRIMITIVES)), min_size=1, max_size=3, unique=True))
    if kind == "enum":
        symbols = draw(st.lists(st.sampled_from("ABC"), min_size=1, unique=True))
        return {"type": "enum", "name": "", "symbols": symbols}
    return kind


@st.composite
def avro_records(draw):
    fields = []
    for name in draw(st.lists(st.sampled_from("abcd"), max_size=4, unique=True)):
        kind = draw(avro_types())
        field = {"name": name, "type": kind}
        if isinstance(kind, str) and draw(st.booleans()):
            field["default"] = DEFAULTS[kind]
        fields.append(field)
    for field in fields:
        _name_enums(field["type"], f"E{field['name']}")
    return {"type": "record", "name": "R", "fields": fields}


def _name_enums(kind, name):
    """A name may be defined once: it is that of the field that holds the enum."""
    if isinstance(kind, dict):
        if kind["type"] == "enum":
            kind["name"] = name
        _name_enums(kind.get("items", kind.get("values")), name)


WIDER = {"int": ["long", "float", "double"], "long": ["float", "double"], "string": ["bytes"], "bytes": ["string"]}


@st.composite
def evolved(draw, record):
    """The next version of a record, as people write it: often compatible, not always."""
    fields = []
    for field in record["fields"]:
        match draw(st.sampled_from(["keep", "keep", "drop", "widen", "optional", "other"])):
            case "keep":
                fields.append(field)
            case "widen" if isinstance(field["type"], str):
                fields.append(
                    {"name": field["name"], "type": draw(st.sampled_from(WIDER.get(field["type"], [field["type"]])))}
                )
            case "optional" if isinstance(field["type"], str) and field["type"] != "null":
                fields.append({"name": field["name"], "type": ["null", field["type"]]})
            case "other":
                fields.append({"name": field["name"], "type": draw(st.sampled_from(list(PRIMITIVES)))})
    kind = draw(st.sampled_from(list(PRIMITIVES)))
    return {**record, "fields": [*fields, {"name": "z", "type": kind, "default": DEFAULTS[kind]}]}


def values(kind):
    if isinstance(kind, list):
        return st.one_of(*(values(each) for each in kind))
    if isinstance(kind, str):
        return PRIMITIVES[kind]
    match kind["type"]:
        case "array":
            return st.lists(values(kind["items"]), max_size=2)
        case "map":
            return st.dictionaries(st.text(max_size=2), values(kind["values"]), max_size=2)
        case "enum":
            return st.sampled_from(kind["symbols"])
    return st.fixed_dictionaries({each["name"]: values(each["type"]) for each in kind["fields"]})


def avro(value):
    return parse("AVRO", json.dumps(value), {})


@settings(max_examples=60, deadline=None)
@given(avro_records(), avro_records(), avro_records())
def test_full_is_both_ways_and_transitive_is_all_versions(new, last, first):
    new, earlier = avro(new), [(2, avro(last)), (1, avro(first))]

    def found(level, versions):
        return set(check(level, new, versions))

    for suffix in ("", "_TRANSITIVE"):
        both = found(f"BACKWARD{suffix}", earlier) | found(f"FORWARD{suffix}", earlier)
        assert found(f"FULL{suffix}", earlier) == both
    for level in ("BACKWARD", "FORWARD", "FULL"):
        assert found(f"{level}_TRANSITIVE", earlier) == found(level, earlier) | found(level, earlier[1:])
    assert not found("NONE", earlier)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(st.data())
def test_a_compatible_avro_reader_reads_what_was_written(data):
    writer = data.draw(avro_records())
    reader = data.draw(evolved(writer))
    assume(not check("BACKWARD", avro(reader), [(1, avro(writer))]))
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(writer), data.draw(values(writer)))
    written.seek(0)
    read = fastavro.schemaless_reader(written, fastavro.parse_schema(writer), fastavro.parse_schema(reader))
    assert set(read) == {each["name"] for each in reader["fields"]}


@settings(max_examples=60, deadline=None)
@given(avro_records())
def test_a_schema_reads_itself_and_its_text_is_itself(given_record):
    schema = avro(given_record)
    assert not check("FULL_TRANSITIVE", schema, [(1, schema)])
    assert parse("AVRO", schema.text, {}).text == schema.text
    normalized = parse("AVRO", schema.normalized(), {})
    assert not check("FULL", normalized, [(1, schema)])


SCALARS = ["int32", "int64", "uint32", "sint32", "bool", "string", "bytes", "fixed32", "sfixed64", "float", "double"]


@st.composite
def messages(draw):
    fields = []
    for number in draw(st.lists(st.integers(1, 5), max_size=5, unique=True)):
        label = draw(st.sampled_from(["", "repeated ", "optional "]))
        fields.append(f"{label}{draw(st.sampled_from(SCALARS))} f{number} = {number};")
    return 'syntax = "proto3"; message M { ' + " ".join(fields) + " }"


def message_class(schema):
    pool = descriptor_pool.DescriptorPool()
    pool.Add(without_custom_options(schema.file))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("M"))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(messages(), messages(), st.integers(0, 1))
def test_a_compatible_protobuf_reader_keeps_the_values_whose_type_is_the_same(written_as, read_as, amount):
    writer, reader = parse("PROTOBUF", written_as, {}), parse("PROTOBUF", read_as, {})
    assume(not check("BACKWARD", reader, [(1, writer)]))
    written = message_class(writer)()
    for field in written.DESCRIPTOR.fields:
        value = {field.CPPTYPE_STRING: "x" if field.type == field.TYPE_STRING else b"x"}.get(field.cpp_type, amount)
        if field.is_repeated:
            getattr(written, field.name).extend([value, value])
        else:
            setattr(written, field.name, value)
    read = message_class(reader)()
    read.ParseFromString(written.SerializeToString())
    for field in read.DESCRIPTOR.fields:
        before = written.DESCRIPTOR.fields_by_number.get(field.number)
        if before is not None and (before.type, before.is_repeated) == (field.type, field.is_repeated):
            assert getattr(read, field.name) == getattr(written, before.name)


@settings(max_examples=50, deadline=None)
@given(messages())
def test_text_descriptor_and_normalized_text_are_one_protobuf_schema(text):
    schema = parse("PROTOBUF", text, {})
    for form in (schema.text, schema.normalized(), schema.formatted("serialized")):
        assert parse("PROTOBUF", form, {}).canonical_key == schema.canonical_key
