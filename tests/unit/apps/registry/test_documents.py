"""Metadata, rules and guids."""

import hashlib
import uuid

import pytest

from tailrace.apps.registry.errors import RegistryError
from tailrace.apps.registry.state.documents import (
    guid_of,
    merge_metadata,
    merge_rules,
    read_metadata,
    read_rules,
    set_confluent_version,
)

TEXT = '{"type":"record","name":"Person","fields":[]}'
RULE = {"name": "check", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}


def test_a_guid_is_the_md5_of_the_text():
    assert guid_of(TEXT, [], None, None) == str(uuid.UUID(bytes=hashlib.md5(TEXT.encode()).digest()))


def test_everything_that_is_part_of_a_schema_changes_its_guid():
    reference = [{"name": "a", "subject": "b", "version": 1}]
    guids = {
        guid_of(TEXT, references, metadata, rules)
        for references in ([], reference, [{**reference[0], "version": 2}])
        for metadata in (None, {}, {"properties": {"a": "b"}}, {"sensitive": ["a"]})
        for rules in (None, {}, read_rules({"domainRules": [RULE]}))
    }
    assert len(guids) == 3 * 4 * 3 - 3  # An empty one and none differ, but which of the two is empty cannot be told.


def test_metadata_is_sorted():
    assert read_metadata({"properties": {"b": "1", "a": 2}, "tags": {"t": ["y", "x", "y"]}, "other": 1}) == {
        "tags": {"t": ["x", "y"]},
        "properties": {"a": "2", "b": "1"},
    }
    assert list(read_metadata({"properties": {"b": "1", "a": "2"}})["properties"]) == ["a", "b"]


@pytest.mark.parametrize(
    "raw", [[], "x", {"tags": ["a"]}, {"properties": "x"}, {"sensitive": {}}, {"tags": {"a": "b"}}]
)
def test_what_is_no_metadata_is_refused(raw):
    with pytest.raises(RegistryError) as caught:
        read_metadata(raw)
    assert caught.value.status == 422


def test_rules_keep_confluents_order():
    rules = read_rules({"domainRules": [{**RULE, "params": {"b": 1, "a": 2}, "tags": ["z", "y"]}]})
    assert list(rules["domainRules"][0]) == ["name", "kind", "mode", "type", "tags", "params", "expr", "disabled"]
    assert rules["domainRules"][0]["tags"] == ["y", "z"]


@pytest.mark.parametrize(
    ("rule", "kind", "message"),
    [
        ({**RULE, "type": "ENCRYPT"}, "domainRules", "encrypts"),
        ({**RULE, "type": "ENCRYPT_PAYLOAD"}, "encodingRules", "encrypts"),
        ({**RULE, "mode": "UPGRADE"}, "domainRules", "Domain rules can only be WRITE, READ, WRITEREAD"),
        (RULE, "migrationRules", "Migration rules can only be UPGRADE, DOWNGRADE, UPDOWN"),
        ({**RULE, "name": "1a"}, "domainRules", "Illegal initial character"),
        ({**RULE, "name": "a b"}, "domainRules", "Illegal character"),
        ({**RULE, "name": "a" * 65}, "domainRules", "too long"),
        ({"name": "a", "mode": "WRITE"}, "domainRules", "Missing rule type"),
        ({"type": "CEL", "mode": "WRITE"}, "domainRules", "Missing rule name"),
        ("x", "domainRules", "object"),
    ],
)
def test_rules_that_are_refused(rule, kind, message):
    with pytest.raises(RegistryError, match=message) as caught:
        read_rules({kind: [rule]})
    assert caught.value.code == 42210


def test_two_rules_of_one_name_are_refused():
    with pytest.raises(RegistryError, match="duplicate name 'check'"):
        read_rules({"domainRules": [RULE, RULE]})


def test_what_is_merged():
    under, over = {"properties": {"a": "1", "b": "1"}}, {"properties": {"b": "2"}, "sensitive": ["b"]}
    assert merge_metadata(under, over) == {"properties": {"a": "1", "b": "2"}, "sensitive": ["b"]}
    assert merge_metadata(None, over) == over
    assert merge_metadata(under, None) == under
    first, second = read_rules({"domainRules": [RULE]}), read_rules({"domainRules": [{**RULE, "expr": "false"}]})
    assert merge_rules(first, second) == second
    assert set_confluent_version(None, 3) == {"properties": {"confluent:version": "3"}}
