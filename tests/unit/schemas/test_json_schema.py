"""JSON Schema: what is refused and why, references, and what a refusal says."""

import json

import pytest

from tailrace.schemas import InvalidSchema, check, parse


def schema(value, references=None):
    return parse("JSON", json.dumps(value), references or {})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], "an object or a boolean"),
        ({"type": "strin"}, "unknown type"),
        ({"properties": {"a": {"minLength": -1}}}, "#/properties/a/minLength"),
        ({"required": "a"}, "#/required"),
        ({"properties": []}, "#/properties"),
        ({"allOf": {}}, "#/allOf"),
        ({"multipleOf": 0}, "cannot be 0"),
        ({"$ref": "#/definitions/none"}, "leads nowhere"),
        ({"$ref": "other.json"}, "list it in `references`"),
        ({"$ref": "http://example.com/a.json"}, "nothing is fetched"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"type": "string", "pattern": "("}, "regular expression"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_place_and_the_reason(value, why):
    with pytest.raises(InvalidSchema, match=why):
        schema(value)


def test_text_and_normalized_text():
    found = parse("JSON", '{ "type": "number",\n "minimum": 1.50, "$id": "ü" }', {})
    assert found.text == '{"type":"number","minimum":1.50,"$id":"ü"}'
    assert found.normalized() == '{"$id":"ü","minimum":1.50,"type":"number"}'


def test_references_by_name_by_address_and_by_anchor():
    address = {
        "$id": "http://x/address.json",
        "definitions": {"zip": {"$id": "#zip", "type": "string"}},
        "type": "object",
    }
    named = {"address.json": schema(address)}
    for reference in ("address.json", "address.json#/definitions/zip", "http://x/address.json#zip"):
        schema({"properties": {"a": {"$ref": reference}}}, named)
    old = schema({"properties": {"a": {"$ref": "address.json#/definitions/zip"}}, "additionalProperties": False}, named)
    new = schema({"properties": {"a": {"type": "integer"}}, "additionalProperties": False})
    (found,) = check("BACKWARD", new, [(1, old)])
    assert (found.rule, found.path) == ("TYPE_CHANGED", "#/properties/a")


def test_a_refusal_tells_where_which_rule_and_what_would_pass():
    old = schema({"type": "object", "properties": {"a": {"type": "string"}}})
    new = schema({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}})
    (found,) = check("BACKWARD", new, [(7, old)])
    assert (found.rule, found.path, found.version) == (
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "#/properties/b",
        7,
    )
    assert found.message == (
        '{errorType:"OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", description:"The new schema has an open content '
        "model and has a property or item at path '#/properties/b' which is missing in the old schema'}"
    )
    assert "close the content model" in found.remedy


def test_a_difference_deep_in_a_recursive_schema_is_found_and_an_equal_one_ends():
    def tree(kind):
        node = {"type": "object", "properties": {"v": {"type": kind}, "next": {"$ref": "#/$defs/node"}}}
        return {"$ref": "#/$defs/node", "$defs": {"node": {**node, "additionalProperties": False}}}

    assert not check("FULL", schema(tree("string")), [(1, schema(tree("string")))])
    assert check("BACKWARD", schema(tree("integer")), [(1, schema(tree("string")))])


def test_exclusive_limits_of_draft_4_are_limits():
    draft = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "number", "minimum": 5}
    inclusive, exclusive = schema(draft), schema({**draft, "exclusiveMinimum": True})
    assert [each.rule for each in check("BACKWARD", exclusive, [(1, inclusive)])] == ["EXCLUSIVE_MINIMUM_ADDED"]
    assert not check("BACKWARD", inclusive, [(1, exclusive)])


def test_parts_of_a_combination_are_matched_as_well_as_possible():
    """A greedy match would give the number to the first part, and leave none for the second."""
    old = schema({"oneOf": [{"type": "integer"}, {"type": "number", "maximum": 5}]})
    new = schema({"oneOf": [{"type": "number", "maximum": 9}, {"type": "integer", "maximum": 7}, {"type": "integer"}]})
    assert not check("BACKWARD", new, [(1, old)])
    assert check("BACKWARD", old, [(1, new)])
