"""Avro: what is refused and why, and how a schema is written."""

import pytest

from tailrace.schemas import InvalidSchema, check, parse

USER = '{"type":"record","name":"User","namespace":"app","fields":[{"name":"id","type":"long"}]}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ('"strin"', "Undefined name"),
        ('{"type":"record","name":"R"}', "Record has no fields"),
        ('{"type":"record","name":"1R","fields":[]}', "Illegal character"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
            "Duplicate field a",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}',
            'Invalid default for field R.a: "x"',
        ),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "Duplicate in enum: A"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "not in the enum symbol set"),
        ('{"type":"fixed","name":"F","size":-1}', "Invalid or no size"),
        ('["int","int"]', "Duplicate in union: int"),
        ('["int",["string"]]', "Nested union"),
        ('{"type":"array"}', 'no "items"'),
        ('{"type":{"type":"int"}}', "No type"),
        ("NaN", "not a number"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_place_and_the_reason(text, why):
    with pytest.raises(InvalidSchema, match=why.replace("(", "\\(")):
        parse("AVRO", text, {})


def test_the_text_is_what_java_writes():
    given = """{
      "namespace": "app", "name": "R", "doc": "d", "type": "record", "extra": {"b": 1, "a": 2}, "aliases": ["Old"],
      "fields": [
        {"type": {"type": "string", "avro.java.string": "String"}, "name": "s", "default": "x", "order": "descending"},
        {"name": "e", "type": {"type": "enum", "symbols": ["A", "B"], "name": "E", "default": "A"}, "doc": "which"},
        {"name": "again", "type": ["null", "app.E"], "default": null},
        {"name": "d", "type": "double", "default": 12345678.5},
        {"name": "m", "type": {"values": {"type": "fixed", "name": "other.F", "size": 3}, "type": "map"}}
      ]}"""
    assert parse("AVRO", given, {}).text == (
        '{"type":"record","name":"R","namespace":"app","doc":"d","fields":['
        '{"name":"s","type":{"type":"string","avro.java.string":"String"},"default":"x","order":"descending"},'
        '{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"],"default":"A"},"doc":"which"},'
        '{"name":"again","type":["null","E"],"default":null},'
        '{"name":"d","type":"double","default":1.23456785E7},'
        '{"name":"m","type":{"type":"map","values":{"type":"fixed","name":"F","namespace":"other","size":3}}}],'
        '"extra":{"b":1,"a":2},"aliases":["Old"]}'
    )


def test_the_text_is_a_schema_with_the_same_text():
    once = parse("AVRO", USER, {})
    assert parse("AVRO", once.text, {}).text == once.text


def test_normalized_forms_of_two_spellings_are_equal():
    one = '{"type":"record","name":"app.R","z":1,"a":2,"fields":[{"name":"x","type":"int","order":"ascending"}]}'
    two = '{"a":2,"z":1,"namespace":"app","name":"R","type":"record","fields":[{"type":"int","name":"x"}]}'
    first, second = parse("AVRO", one, {}), parse("AVRO", two, {})
    assert first.text != second.text
    assert first.normalized() == second.normalized()


def test_a_reference_is_mentioned_in_the_text_and_written_out_when_resolved():
    user = parse("AVRO", USER, {})
    order = parse("AVRO", '{"type":"record","name":"Order","fields":[{"name":"by","type":"app.User"}]}', {"user": user})
    assert order.text == '{"type":"record","name":"Order","fields":[{"name":"by","type":"app.User"}]}'
    assert '"fields":[{"name":"id","type":"long"}]' in order.formatted("resolved")
    assert order.referenced == ("user",)
    with pytest.raises(InvalidSchema, match=r"app\.User"):
        parse("AVRO", order.text, {})


def test_a_refusal_tells_where_which_rule_which_version_and_what_would_pass():
    old = parse("AVRO", USER, {})
    new = parse("AVRO", USER.replace("}]}", '},{"name":"mail","type":"string"}]}'), {})
    (found,) = check("BACKWARD", new, [(3, old)])
    assert (found.rule, found.path, found.version) == ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1", 3)
    assert found.message == (
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'mail' at path '/fields/1' in the new "
        "schema has no default value and is missing in the old schema', additionalInfo:'mail'}"
    )
    assert found.remedy == "give the field mail a default, or an alias with the name that it had"
    assert not check("FORWARD", new, [(3, old)])


def test_a_recursive_type_is_compared_to_an_end():
    tree = '{"type":"record","name":"T","fields":[{"name":"v","type":"%s"},{"name":"next","type":["null","T"]}]}'
    ints, texts = parse("AVRO", tree % "int", {}), parse("AVRO", tree % "string", {})
    assert not check("FULL", ints, [(1, ints)])
    assert {each.path for each in check("BACKWARD", texts, [(1, ints)])} == {"/fields/0/type"}
