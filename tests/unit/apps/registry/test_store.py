"""What the topic says, record by record."""

import pytest

from tailrace.apps.registry.state import records
from tailrace.apps.registry.state.records import DamagedRecordError, Record, Reference, SchemaValue
from tailrace.apps.registry.state.store import LATEST, State


def replay(state: State, *written: Record) -> State:
    for each in written:
        state.replay_record(each.key, each.value, 0)
    return state


def schema(subject: str, version: int, schema_id: int, text: str = "", **fields) -> Record:
    value = SchemaValue(schema_id, "AVRO", text or f'"text {schema_id}"', **fields)
    return records.schema_record(subject, version, value)


def test_versions_are_in_order_however_they_come():
    state = replay(State(), schema("a", 2, 2), schema("a", 1, 1), schema("a", 10, 3))
    assert [each.version for each in state.versions("a")] == [1, 2, 10]
    assert state.find("a", LATEST).id == 3


def test_a_soft_deleted_version_is_readable_by_id_and_not_otherwise():
    state = replay(State(), schema("a", 1, 1), schema("a", 1, 1, is_deleted=True))
    assert state.find("a", 1) is None
    assert state.find("a", 1, deleted=True).id == 1
    assert state.version_by_id(".", 1).subject == "a"
    assert state.subjects() == []
    assert state.subjects(deleted=True) == state.subjects(deleted_only=True) == ["a"]


def test_a_tombstone_takes_the_id_with_it_and_the_number_is_not_given_again():
    state = replay(State(), schema("a", 1, 5), records.schema_record("a", 1, None))
    assert state.version_by_id(".", 5) is None
    assert state.max_id(".") == 5


def test_one_id_for_a_schema_of_two_subjects():
    state = replay(State(), schema("a", 1, 1), schema("b", 1, 1), records.schema_record("a", 1, None))
    assert [each.subject for each in state.versions_by_id(".", 1)] == ["b"]
    assert state.id_of(".", state.find("b", 1).guid) == 1


def test_an_id_that_is_another_schema_already_is_damage():
    state = replay(State(), schema("a", 1, 1, '"one"'))
    with pytest.raises(DamagedRecordError, match="id 1 is another schema"):
        replay(state, schema("b", 1, 1, '"two"'))
    assert state.subjects() == ["a"]


def test_contexts_count_ids_by_themselves():
    state = replay(State(), schema("a", 1, 1, '"one"'), schema(":.c:a", 1, 1, '"two"'))
    assert state.version_by_id(".c", 1).value.text == '"two"'
    assert state.all_contexts() == [".", ".c"]
    assert state.subjects() == [":.c:a", "a"]
    assert state.subjects(":.c:") == [":.c:a"]
    assert state.subjects(":*:a") == [":.c:a", "a"]
    assert state.same_subjects("a") == ["a", ":.c:a"]


def test_a_subject_that_is_deleted_as_a_whole():
    state = replay(State(), schema("a", 1, 1), schema("a", 2, 2), records.delete_subject_record("a", 1))
    assert [each.version for each in state.versions("a")] == [2]
    replay(state, records.delete_subject_record("a", 2))
    assert state.versions("a") == []
    assert len(state.versions("a", deleted=True)) == 2


def test_clearing_takes_what_is_soft_deleted():
    state = replay(State(), schema("a", 1, 1), schema("a", 2, 2, is_deleted=True), records.clear_subject_record("a"))
    assert [each.version for each in state.versions("a", deleted=True)] == [1]


def test_who_refers_to_a_version():
    reference = (Reference("x", "a", 1),)
    state = replay(State(), schema("a", 1, 1), schema("b", 1, 2, references=reference))
    assert [each.id for each in state.referrers("a", 1, deleted=False)] == [2]
    replay(state, records.schema_record("b", 1, None))
    assert state.referrers("a", 1, deleted=True) == []


def test_settings_hold_from_the_inside_out():
    state = State()
    assert state.config_in_scope("a")["compatibilityLevel"] == "BACKWARD"
    replay(state, records.config_record(None, {"compatibilityLevel": "NONE", "normalize": True}))
    replay(state, records.config_record("a", {"compatibilityLevel": "FULL"}))
    assert state.config_in_scope("a") == {"compatibilityLevel": "FULL", "normalize": True}
    assert state.config_in_scope("b")["compatibilityLevel"] == "NONE"
    replay(state, records.config_record(":.c:", {"compatibilityLevel": "FORWARD"}))
    assert state.config_in_scope(":.c:b")["compatibilityLevel"] == "FORWARD"
    replay(state, records.config_record(":.__GLOBAL:", {"compatibilityLevel": "FULL_TRANSITIVE"}))
    assert state.config_in_scope(":.d:b")["compatibilityLevel"] == "FULL_TRANSITIVE"
    replay(state, records.config_record("a", None))
    assert state.config_in_scope("a")["compatibilityLevel"] == "NONE"


def test_modes_hold_from_the_inside_out_except_the_one_that_overrides():
    state = replay(State(), records.mode_record("a", "READWRITE"), records.mode_record(None, "READONLY"))
    assert (state.mode_in_scope("a"), state.mode_in_scope("b")) == ("READWRITE", "READONLY")
    replay(state, records.mode_record(None, "READONLY_OVERRIDE"))
    assert state.mode_in_scope("a") == "READONLY_OVERRIDE"
    with pytest.raises(DamagedRecordError, match="mode FAST is not known"):
        replay(state, records.mode_record("a", "FAST"))


def test_an_alias_is_another_name():
    state = replay(State(), records.config_record(":.c:a", {"alias": "b"}))
    assert state.resolve_alias(":.c:a") == ":.c:b"
    assert state.resolve_alias("a") == "a"
