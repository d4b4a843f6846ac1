"""Avro read many rows at a time is Avro read one row after the other, whatever the schemas, the data and the damage."""

import io
import json
from itertools import count

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from tailrace.schemas import check, parse
from tailrace.spark.values.avro.columns import Values, decode_together
from tailrace.spark.values.avro.reading import plan_reading
from tailrace.spark.values.avro.single import SingleAvroDecoder
from tailrace.spark.values.avro_values import AvroFormat

PRIMITIVES = ("boolean", "int", "long", "float", "double", "string", "bytes")
LOGICAL = (
    ("int", "date"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "local-timestamp-micros"),
    ("string", "uuid"),
    ("int", "time-millis"),
)
WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",), "bytes": ()}
DEFAULTS = {
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 1.5,
    "double": 2.5,
    "string": "é",
    "bytes": "\u00ff\u0000",
}


@st.composite
def pairs(draw, names, depth=2):
    """A type of the writer's, and what the reader makes of it."""
    kinds = ["primitive", "primitive", "logical", "decimal", "enum", "fixed"]
    kind = draw(st.sampled_from([*kinds, *(["record", "record", "array", "map", "nullable"] if depth else [])]))
    if kind == "primitive":
        writer = draw(st.sampled_from(PRIMITIVES))
        reader = draw(st.sampled_from([writer, *WIDER.get(writer, ())]))
        return draw(st.sampled_from([(writer, reader), (writer, ["null", reader]), ([writer], reader)]))
    if kind == "logical":
        primitive, name = draw(st.sampled_from(LOGICAL))
        written = {"type": primitive, "logicalType": name}
        return draw(st.sampled_from([(written, written), (primitive, written), (written, primitive)]))
    if kind == "decimal":
        base = {"type": "bytes"}
        if draw(st.booleans()):
            base = {"type": "fixed", "name": f"D{next(names)}", "size": 5}
        written = {**base, "logicalType": "decimal", "precision": 9, "scale": 2}
        return draw(st.sampled_from([(written, written), (base, written), (written, base)]))
    if kind == "enum":
        found = {"type": "enum", "name": f"E{next(names)}", "symbols": ["A", "B", "C"]}
        return found, {**found, "symbols": draw(st.permutations("ABCD"))}
    if kind == "fixed":
        return (found := {"type": "fixed", "name": f"F{next(names)}", "size": draw(st.integers(1, 9))}), found
    if kind == "record":
        return draw(records(names, depth - 1))
    writer, reader = draw(pairs(names, depth - 1))
    if kind == "nullable":
        if isinstance(writer, list) or isinstance(reader, list):
            return writer, reader
        order = draw(st.sampled_from([0, 1]))
        return [writer, "null"] if order else ["null", writer], ["null", reader]
    key = "items" if kind == "array" else "values"
    return {"type": kind, key: writer}, {"type": kind, key: reader}


@st.composite
def records(draw, names, depth=2):
    name = f"R{next(names)}"
    written, wanted = [], []
    for number in range(draw(st.integers(1, 4))):
        writer, reader = draw(pairs(names, depth))
        what = draw(st.sampled_from(["both", "both", "dropped", "added", "renamed"]))
        if what != "added":
            written.append({"name": f"f{number}", "type": writer})
        if what == "both":
            wanted.append({"name": f"f{number}", "type": reader})
        elif what == "renamed":
            wanted.append({"name": f"g{number}", "aliases": [f"f{number}"], "type": reader})
        elif what == "added":
            kind = draw(st.sampled_from(PRIMITIVES))
            more = draw(st.sampled_from([{"type": kind}, {"type": {"type": "map", "values": kind}}]))
            default = DEFAULTS[kind] if isinstance(more["type"], str) else {"k": DEFAULTS[kind]}
            wanted.append({"name": f"f{number}", **more, "default": default})
    wanted.append({"name": "last", "type": ["null", "long"], "default": None})
    fields = draw(st.permutations(wanted))
    return {"type": "record", "name": name, "fields": written}, {"type": "record", "name": name, "fields": fields}


def data(schema):
    """Of the type below logical ones."""
    if isinstance(schema, list):
        return st.one_of([data(each) for each in schema])
    if isinstance(schema, str):
        return {
            "null": st.none(),
            "boolean": st.booleans(),
            # Within the calendar, since some are days and milliseconds.
            "int": st.integers(-700_000, 700_000) | st.sampled_from([-(2**31), 2**31 - 1]),
            "long": st.integers(-(10**13), 10**13) | st.sampled_from([-(2**63), 2**63 - 1]),
            "float": st.floats(width=32, allow_nan=False),
            "double": st.floats(allow_nan=False),
            "string": st.text(max_size=9),
            "bytes": st.binary(max_size=9),
        }[schema]
    match schema["type"]:
        case "enum":
            return st.sampled_from(schema["symbols"])
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
        case "array":
            return st.lists(data(schema["items"]), max_size=3)
        case "map":
            return st.dictionaries(st.text(max_size=2), data(schema["values"]), max_size=3)
        case "record":
            return st.fixed_dictionaries({each["name"]: data(each["type"]) for each in schema["fields"]})
    return data(schema["type"])


def plain(schema):
    if isinstance(schema, list):
        return [plain(each) for each in schema]
    if isinstance(schema, dict):
        return {key: plain(each) for key, each in schema.items() if key not in ("logicalType", "precision", "scale")}
    return schema


def written(schema, datum):
    stream = io.BytesIO()
    schemaless_writer(stream, schema, datum)
    return stream.getvalue()


@st.composite
def undamaged(draw):
    names = count()
    writer, reader = draw(records(names))
    schema = parse_schema(plain(writer))
    return writer, reader, [written(schema, each) for each in draw(st.lists(data(writer), min_size=1, max_size=4))]


class Damaged(list):
    pass


@st.composite
def damaged(draw):
    writer, reader, values = draw(undamaged())
    values = Damaged(values)
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.integers(0, len(values) - 1))
        value = values[place] or b""
        match draw(st.sampled_from(["cut", "more", "byte", "null"])):
            case "null":
                values[place] = None
            case "cut":
                values[place] = value[: draw(st.integers(0, max(0, len(value) - 1)))]
            case "more":
                values[place] = value + draw(st.binary(min_size=1, max_size=3))
            case "byte" if value:
                at = draw(st.integers(0, len(value) - 1))
                values[place] = value[:at] + draw(st.binary(min_size=1, max_size=1)) + value[at + 1 :]
    return writer, reader, values


class Singly:
    """What has been left to it."""

    def __init__(self, reading, reader, found):
        self.inner = SingleAvroDecoder(reader, found, has_prefix=False)
        self.inner._read_datum = lambda stream, schema: schemaless_reader(stream, reading.written_by, schema)
        self.rows = 0

    def decode(self, column):
        self.rows += len(column)
        return self.inner.decode(column)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.booleans().flatmap(lambda is_damaged: damaged() if is_damaged else undamaged()))
def test_together_is_as_singly(given_columns):
    writer, reader, values = given_columns
    written_by, read_as = (parse("AVRO", json.dumps(each), {}) for each in (writer, reader))
    assert not check("BACKWARD", read_as, [(1, written_by)])
    wanted = AvroFormat.parse(read_as.text, has_confluent_prefix=False)
    found = to_arrow_type(wanted.spark_type, timezone="UTC")
    reading = plan_reading(written_by, read_as, found)
    assert reading.program is not None
    column = pa.array([b"of another slice", *values], pa.binary()).slice(1)
    expected = Singly(reading, read_as.text, found).decode(column)
    singly = Singly(reading, read_as.text, found)
    together = decode_together(column, [(reading.program, Values.of(column))], singly.decode)
    together.column.validate(full=True)
    assert together.column.type == expected.column.type == found
    assert together.bad == expected.bad
    assert repr(together.column.to_pylist()) == repr(expected.column.to_pylist())
    if not isinstance(values, Damaged):
        # Nothing is left to the other one, with which it is compared, but what no column can hold.
        assert singly.rows == len(expected.bad)
