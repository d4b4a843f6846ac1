"""What a subject asks beside its level: a lenient policy, and fields that metadata reserves."""

import json

import pytest

from tailrace.apps.registry.errors import RegistryError
from tailrace.apps.registry.state.deciding import NewSchema, judge, prepare_comparison
from tailrace.apps.registry.state.deleting import decide_config
from tailrace.apps.registry.state.parsing import Parsed
from tailrace.apps.registry.state.policy import messages
from tailrace.apps.registry.state.records import SchemaValue, schema_record
from tailrace.apps.registry.state.store import State

AVRO = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
JSON = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}})
PROTOBUF = 'syntax = "proto3"; message M { int32 a = 1; }'
KINDS = [("AVRO", AVRO), ("JSON", JSON), ("PROTOBUF", PROTOBUF)]


def reserved(names: str) -> dict:
    return {"properties": {"confluent:reserved": names}}


def state_with(kind: str, text: str, config: dict, metadata: dict | None = None) -> State:
    state = State()
    written = [schema_record("s", 1, SchemaValue(1, kind, text, metadata=metadata))]
    written += decide_config(state, "s", config).records
    for each in written:
        state.replay_record(each.key, each.value, 0)
    return state


def lines(state: State, kind: str, text: str, metadata: dict | None = None) -> list[str]:
    new = NewSchema(kind, text, metadata=metadata)
    question = prepare_comparison(state, "s", new, state.versions("s"), normalize=False)
    return messages(judge(question, Parsed(10)).incompatibilities, question.policy)


@pytest.mark.parametrize(("kind", "text"), KINDS)
def test_a_reserved_name_is_not_used_and_stays_reserved(kind, text):
    state = state_with(kind, text, {"validateFields": True}, reserved("gone, old"))
    assert lines(state, kind, text, reserved("old,gone")) == []
    used = lines(state, kind, text, reserved("a,gone,old"))
    assert used[0] == "The new schema has field that conflicts with the reserved field a."
    assert used[-1] == "{validateFields: 'true', compatibility: 'BACKWARD'}"
    given_up = lines(state, kind, text, reserved("gone"))
    assert given_up[0].startswith("The new schema has reserved field old removed from its metadata")


@pytest.mark.parametrize(("kind", "text"), KINDS)
def test_names_are_free_where_nobody_asks(kind, text):
    state = state_with(kind, text, {"validateFields": False}, reserved("gone"))
    assert lines(state, kind, text, reserved("a")) == []


def test_reserved_names_hold_at_the_level_none_too():
    state = state_with("AVRO", AVRO, {"validateFields": True, "compatibility": "NONE"})
    assert lines(state, "AVRO", AVRO, reserved("a"))


def test_names_that_confluent_keeps_for_itself():
    state = state_with("JSON", JSON, {"validateFields": True})
    with pytest.raises(RegistryError, match="cannot start with"):
        lines(state, "JSON", JSON.replace('"a"', '"$$a"'))


# Of a JSON Schema: which change passes by which policy. `open` is the content model.
@pytest.mark.parametrize(
    ("open_", "before", "after", "required", "strict", "lenient"),
    [
        (False, "a", "ab", "", True, True),
        (True, "a", "ab", "", False, True),
        (False, "ab", "a", "", False, True),
        (True, "ab", "a", "", True, True),
        (False, "a", "ab", "b", False, False),
        (True, "a", "ab", "b", False, False),
        (False, "a", "aD", "D", True, True),
        (True, "a", "aD", "D", False, True),
    ],
)
def test_properties_come_and_go_by_the_lenient_policy(*, open_, before, after, required, strict, lenient):
    def schema(names: str, needed: str) -> str:
        kinds = {"D": {"type": "string", "default": ""}}
        properties = {name: kinds.get(name, {"type": "string"}) for name in names}
        return json.dumps(
            {"type": "object", "properties": properties, "required": list(needed), "additionalProperties": open_}
        )

    for policy, passes in (("STRICT", strict), ("lenient", lenient)):
        state = state_with("JSON", schema(before, ""), {"compatibilityPolicy": policy})
        assert (lines(state, "JSON", schema(after, required)) == []) is passes, policy


def test_the_lenient_policy_closes_a_content_model():
    closed = json.dumps({**json.loads(JSON), "additionalProperties": False})
    assert lines(state_with("JSON", JSON, {"compatibilityPolicy": "LENIENT"}), "JSON", closed) == []
    assert lines(state_with("JSON", JSON, {}), "JSON", closed)


def test_the_lenient_policy_holds_inside_of_combinations():
    def both(*names: str) -> str:
        properties = {name: {"type": "string"} for name in names}
        return json.dumps({"allOf": [{"type": "object", "properties": properties}, {"type": "object"}]})

    assert lines(state_with("JSON", both("a"), {"compatibilityPolicy": "LENIENT"}), "JSON", both("a", "b")) == []
    assert lines(state_with("JSON", both("a"), {}), "JSON", both("a", "b"))


def test_other_policies_are_refused():
    with pytest.raises(RegistryError, match="strict and lenient"):
        decide_config(State(), "s", {"compatibilityPolicy": "LOGICAL"})
