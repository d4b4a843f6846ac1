"""The seven levels, and hostile schemas of every kind."""

import json

import pytest

from tailrace.schemas import LEVELS, InvalidSchema, check, parse

# Each reads the one before, and the third does not read the first.
CHAIN = [
    parse("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}), {})
    for fields in (
        [{"name": "a", "type": "string"}],
        [{"name": "a", "type": "string"}, {"name": "b", "type": "int", "default": 0}],
        [{"name": "a", "type": "string"}, {"name": "b", "type": "int"}],
    )
]
EARLIER = [(2, CHAIN[1]), (1, CHAIN[0])]


@pytest.mark.parametrize(
    ("level", "versions"),
    [
        ("NONE", []),
        ("BACKWARD", []),
        ("BACKWARD_TRANSITIVE", [1]),
        ("FORWARD", []),
        ("FORWARD_TRANSITIVE", []),
        ("FULL", []),
        ("FULL_TRANSITIVE", [1]),
    ],
)
def test_a_level_asks_the_last_version_or_all_of_them(level, versions):
    assert [found.version for found in check(level, CHAIN[2], EARLIER)] == versions


def test_there_are_seven_levels_and_no_other():
    assert len(LEVELS) == 7
    with pytest.raises(ValueError, match="not a compatibility level"):
        check("SIDEWAYS", CHAIN[0], [])


def test_another_kind_of_schema_is_incompatible():
    (found,) = check("BACKWARD", parse("JSON", "{}", {}), [(1, CHAIN[0])])
    assert found.message == "Incompatible because of different schema type"
    with pytest.raises(InvalidSchema, match="not a type of schema"):
        parse("THRIFT", "", {})
    with pytest.raises(InvalidSchema, match="is AVRO, and the schema is JSON"):
        parse("JSON", "{}", {"a": CHAIN[0]})


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("AVRO", '{"type":"array","items":' * 10_000 + '"int"' + "}" * 10_000),
        ("AVRO", "[" * 10_000),
        ("JSON", '{"not":' * 10_000 + "{}" + "}" * 10_000),
        ("PROTOBUF", 'syntax="proto3";' + "message A {" * 10_000 + "}" * 10_000),
        ("PROTOBUF", 'syntax="proto3"; option (x) = ' + "{ a " * 10_000 + "}" * 10_000 + ";"),
    ],
)
def test_ten_thousand_levels_are_refused_and_nothing_breaks(kind, text):
    with pytest.raises(InvalidSchema, match=r"nested|neither"):
        parse(kind, text, {})


def test_a_megabyte_is_parsed_and_compared():
    fields = [{"name": f"field_{index}", "type": ["null", "string"], "default": None} for index in range(15_000)]
    avro = parse("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}), {})
    assert len(avro.text) > 900_000
    assert not check("FULL", avro, [(1, avro)])
    properties = {f"field_{index}": {"type": "string", "maxLength": index} for index in range(20_000)}
    found = parse("JSON", json.dumps({"type": "object", "properties": properties}), {})
    assert len(found.text) > 900_000
    assert not check("FULL", found, [(1, found)])


def test_combinations_too_large_to_compare_are_told():
    def combined(word):
        return parse("JSON", json.dumps({"oneOf": [{"type": "string", "const": f"{word}{n}"} for n in range(500)]}), {})

    with pytest.raises(InvalidSchema, match="pairs of its parts"):
        check("BACKWARD", combined("a"), [(1, combined("b"))])


def test_a_long_chain_of_references_ends_with_a_reason():
    chain = {f"d{n}": {"properties": {"next": {"$ref": f"#/definitions/d{n + 1}"}}} for n in range(5_000)}
    text = json.dumps({"$ref": "#/definitions/d0", "definitions": {**chain, "d5000": {}}})
    found = parse("JSON", text, {})
    with pytest.raises(InvalidSchema, match="too deeply"):
        check("BACKWARD", parse("JSON", text, {}), [(1, found)])
