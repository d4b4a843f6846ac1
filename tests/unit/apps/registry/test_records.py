"""The bytes of `_schemas`: written in Confluent's order, read in any."""

import json

import pytest

from tailrace.apps.registry.state import records
from tailrace.apps.registry.state.records import DamagedRecordError, Key, Record, Reference, SchemaValue


def test_keys_are_confluents_to_the_byte():
    assert records.schema_key("a-value", 3) == b'{"keytype":"SCHEMA","subject":"a-value","version":3,"magic":1}'
    assert records.subject_key("CONFIG", "a") == b'{"keytype":"CONFIG","subject":"a","magic":0}'
    assert records.subject_key("CONFIG", None) == b'{"keytype":"CONFIG","magic":0}'
    assert records.mode_record("a", "IMPORT") == Record(
        b'{"keytype":"MODE","subject":"a","magic":0}', b'{"subject":"a","mode":"IMPORT"}'
    )
    assert records.delete_subject_record("a", 2) == Record(
        b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', b'{"subject":"a","version":2}'
    )
    assert records.clear_subject_record("a").key == b'{"keytype":"CLEAR_SUBJECT","subject":"a","magic":0}'
    assert records.NOOP_KEY == b'{"keytype":"NOOP","magic":0}'


def test_a_schema_is_confluents_to_the_byte():
    value = SchemaValue(7, "AVRO", '"string"')
    assert records.schema_record("a", 1, value).value == (
        b'{"subject":"a","version":1,"id":7,"schema":"\\"string\\"","deleted":false}'
    )
    value = SchemaValue(
        8, "JSON", "{}", (Reference("r", "b", 2),), {"properties": {"k": "ü"}}, {"domainRules": []}, is_deleted=True
    )
    assert records.schema_record("a", 2, value).value == (
        b'{"subject":"a","version":2,"id":8,"schemaType":"JSON","references":[{"name":"r","subject":"b","version":2}],'
        b'"metadata":{"properties":{"k":"\xc3\xbc"}},"ruleSet":{"domainRules":[]},"schema":"{}","deleted":true}'
    )
    assert records.read_schema(records.schema_record("a", 2, value).value) == value


def test_settings_keep_their_order():
    config = {"compatibilityLevel": "FULL", "normalize": True}
    assert records.config_record("a", config).value == (b'{"subject":"a","normalize":true,"compatibilityLevel":"FULL"}')


@pytest.mark.parametrize(
    "key",
    [
        {"subject": "a", "version": 1, "magic": 1, "keytype": "SCHEMA"},
        {"magic": 1, "keytype": "SCHEMA", "version": 1, "subject": "a"},
    ],
)
def test_keys_in_another_order_are_read(key):
    assert records.read_key(json.dumps(key).encode()) == Key("SCHEMA", "a", 1)


def test_a_subject_that_is_null_is_none():
    assert records.read_key(b'{"keytype":"CONFIG","subject":null,"magic":0}') == Key("CONFIG")


def test_kinds_of_other_registries_are_left_alone():
    assert records.read_key(b'{"keytype":"ASSOC","tenant":"default"}') is None


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"not json",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"keytype":1}',
        b'{"keytype":"SCHEMA","version":1}',
        b'{"keytype":"SCHEMA","subject":"a","version":0}',
        b'{"keytype":"SCHEMA","subject":"a","version":true}',
        b'{"keytype":"SCHEMA","subject":"a","version":99999999999}',
        b'{"keytype":"DELETE_SUBJECT"}',
        b"[" * 100_000,
    ],
)
def test_damaged_keys(key):
    with pytest.raises(DamagedRecordError):
        records.read_key(key)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b'{"id":1}',
        b'{"schema":"x"}',
        b'{"id":-1,"schema":"x"}',
        b'{"id":1,"schema":{}}',
        b'{"id":1,"schema":"x","references":{"a":1}}',
        b'{"id":1,"schema":"x","references":[1]}',
        b'{"id":1,"schema":"x","metadata":[]}',
        b'{"id":1,"schema":"x","metadata":{"tags":5}}',
        b'{"id":1,"schema":"x","metadata":{"tags":{"a":["b",1]}}}',
        b'{"id":1,"schema":"x","metadata":{"properties":{"a":1}}}',
        b'{"id":1,"schema":"x","metadata":{"sensitive":"a"}}',
        b'{"id":1,"schema":"x","ruleSet":{"domainRules":5}}',
        b'{"id":1,"schema":"x","ruleSet":{"domainRules":[5]}}',
        b'{"id":1,"schema":"x","ruleSet":{"domainRules":[{"type":"CEL"}]}}',
        b'{"id":1,"schema":"x","ruleSet":{"domainRules":[{"name":"a","params":{"b":1}}]}}',
        b'{"id":1,"schema":"x","ruleSet":{"enableAt":5}}',
    ],
)
def test_damaged_values(value):
    with pytest.raises(DamagedRecordError):
        records.read_schema(value)


def test_damaged_settings():
    for value in (b'{"compatibilityLevel":"SIDEWAYS"}', b'{"compatibilityLevel":5}', b'{"defaultMetadata":5}'):
        with pytest.raises(DamagedRecordError):
            records.read_config(value)
