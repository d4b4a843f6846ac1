"""What a request asks for: which version and id, which records, and what is refused."""

import json

import pytest

from tailrace.apps.registry.errors import RegistryError
from tailrace.apps.registry.state import records
from tailrace.apps.registry.state.deciding import (
    NewSchema,
    Registered,
    decide_registration,
    judge,
    prepare_comparison,
    prepare_registration,
)
from tailrace.apps.registry.state.deleting import (
    decide_config,
    decide_config_deletion,
    decide_context_deletion,
    decide_mode,
    decide_mode_deletion,
    decide_subject_deletion,
    decide_version_deletion,
)
from tailrace.apps.registry.state.parsing import Parsed
from tailrace.apps.registry.state.policy import Policy, messages
from tailrace.apps.registry.state.records import Reference
from tailrace.apps.registry.state.store import State


class Registry:
    """A state that takes what is decided, as the topic would give it back."""

    def __init__(self) -> None:
        self.state = State()
        self.parsed = Parsed(10)

    def register(
        self, subject: str, text: str, *, normalize: bool = False, force: bool = False, **fields
    ) -> Registered:
        new = NewSchema(fields.pop("schema_type", None), text, **fields)
        prepared = prepare_registration(self.state, subject, new, normalize=normalize)
        judgement = judge(prepared.question, self.parsed)
        registered = decide_registration(self.state, subject, prepared, judgement, force=force, now_ms=0)
        self.replay(registered.records)
        return registered

    def apply(self, decide, *arguments, **options):
        decided = decide(self.state, *arguments, **options)
        self.replay(decided.records)
        return decided.answer

    def replay(self, written) -> None:
        for each in written:
            self.state.replay_record(each.key, each.value, 0)


@pytest.fixture
def registry() -> Registry:
    return Registry()


def record(*fields: str, name: str = "Order") -> str:
    kinds = {"+": {"default": ""}, " ": {}}
    listed = [{"name": each.strip("+"), "type": "string", **kinds["+" if "+" in each else " "]} for each in fields]
    return json.dumps({"type": "record", "name": name, "fields": listed})


def refused(code: int):
    class Refusal:
        def __enter__(self):
            self.context = pytest.raises(RegistryError)
            self.caught = self.context.__enter__()
            return self.caught

        def __exit__(self, *error):
            swallowed = self.context.__exit__(*error)
            assert self.caught.value.code == code, self.caught.value.message
            return swallowed

    return Refusal()


# --- registering


def test_versions_count_in_a_subject_and_ids_over_all(registry):
    assert (registry.register("a", record("x")).version.id, registry.register("b", record("y")).version.id) == (1, 2)
    second = registry.register("a", record("x", "z+")).version
    assert (second.version, second.id) == (2, 3)


def test_an_equal_schema_has_one_id_and_is_not_written_twice(registry):
    first = registry.register("a", record("x"))
    assert registry.register("a", " " + record("x") + "\n").records == ()
    other = registry.register("b", record("x"))
    assert (other.version.id, other.version.version) == (first.version.id, 1)
    assert other.version.guid == first.version.guid


def test_one_that_is_not_compatible_is_refused_with_what_to_do(registry):
    registry.register("a", record("x"))
    with refused(40901) as caught:
        registry.register("a", record("x", "y"))
    message = caught.value.message
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in message
    assert "oldSchemaVersion: 1" in message
    assert "give the field y a default" in message
    assert "compatibility: 'BACKWARD'" in message
    assert registry.register("a", record("x", "y"), force=True).version.version == 2


def test_a_comparison_tells_everything(registry):
    registry.register("a", record("x"))
    new = NewSchema(None, record("x", "y", "z"))
    question = prepare_comparison(registry.state, "a", new, registry.state.versions("a"), normalize=False)
    lines = messages(judge(question, registry.parsed).incompatibilities, question.policy)
    assert sum("errorType" in line for line in lines) == 2
    assert messages([], Policy("BACKWARD")) == []


def test_what_is_left_out_is_as_before(registry):
    registry.register("a", record("x"), metadata={"properties": {"owner": "me"}})
    second = registry.register("a", record("x", "y+")).version
    assert second.value.metadata == {"properties": {"owner": "me"}}
    third = registry.register("a", "", metadata={"properties": {"owner": "you"}}).version
    assert (third.value.text, third.version) == (second.value.text, 3)
    with refused(42201):
        registry.register("new", " ")


def test_settings_add_metadata(registry):
    registry.apply(decide_config, "a", {"defaultMetadata": {"properties": {"team": "x"}}})
    registry.apply(decide_config, "a", {"overrideMetadata": {"properties": {"level": "high"}}})
    found = registry.register("a", record("x"), metadata={"properties": {"level": "low"}}).version
    assert found.value.metadata == {"properties": {"level": "high", "team": "x"}}


def test_the_version_is_noted_where_it_is_asked_for(registry):
    found = registry.register("a", record("x"), version=-1).version
    assert found.value.metadata == {"properties": {"confluent:version": "1"}}
    assert registry.register("a", record("x", "y+")).version.value.metadata["properties"]["confluent:version"] == "2"


def test_groups_are_compared_by_themselves(registry):
    registry.apply(decide_config, "a", {"compatibilityGroup": "major"})
    registry.register("a", record("x"), metadata={"properties": {"major": "1"}})
    assert registry.register("a", record("y"), metadata={"properties": {"major": "2"}}).version.version == 2
    with refused(40901):
        registry.register("a", record("z"), metadata={"properties": {"major": "2"}})


def test_a_context_is_written_with_its_first_subject(registry):
    first = registry.register(":.c:a", record("x"))
    assert [json.loads(each.key)["keytype"] for each in first.records] == ["CONTEXT", "SCHEMA"]
    assert first.version.id == 1
    assert len(registry.register(":.c:b", record("y")).records) == 1


# --- references


def test_references_are_of_versions_that_are_there(registry):
    registry.register("address", record("street", name="Address"))
    text = json.dumps({"type": "record", "name": "P", "fields": [{"name": "at", "type": "Address"}]})
    found = registry.register("p", text, references=(Reference("Address", "address", -1),)).version
    assert found.value.references == (Reference("Address", "address", 1),)  # The latest is the one that it is now.
    with refused(42201) as caught:
        registry.register("q", text, references=(Reference("Address", "address", 9),))
    assert "the subject has no such version" in caught.value.message
    with refused(42201) as caught:
        registry.register("q", text, references=(Reference("Address", "nowhere", 1),))
    assert "register it first" in caught.value.message
    registry.apply(decide_mode, "address", "READWRITE", force=False)
    with refused(42206):
        registry.apply(decide_version_deletion, "address", 1, permanent=False)
    with refused(42206):
        registry.apply(decide_subject_deletion, "address", permanent=False)


def test_a_reference_to_a_deleted_version_is_refused(registry):
    registry.register("address", record("street", name="Address"))
    registry.apply(decide_version_deletion, "address", 1, permanent=False)
    with refused(42201) as caught:
        registry.register("p", '"Address"', references=(Reference("Address", "address", 1),))
    assert "it is deleted" in caught.value.message


def test_references_in_a_ring_end(registry):
    """Nobody can register one; a topic that was tampered with may hold it."""
    for name, other in (("a", "b"), ("b", "a")):
        reference = (Reference("X", other, 1),)
        written = records.schema_record(name, 1, records.SchemaValue(ord(name), "AVRO", f'"{name}"', reference))
        registry.replay([written])
    with refused(42201) as caught:
        registry.register("p", '"X"', references=(Reference("X", "a", 1),))
    assert "in a ring" in caught.value.message


@pytest.mark.parametrize(
    ("schema_type", "text"),
    [
        ("AVRO", "{"),
        ("AVRO", '{"type":"strin"}'),
        ("AVRO", "[" * 10_000 + "]" * 10_000),
        ("JSON", '{"type":'),
        ("JSON", '{"a":' * 10_000 + "1" + "}" * 10_000),
        ("PROTOBUF", "message {"),
        ("THRIFT", "x"),
    ],
)
def test_what_is_no_schema_is_refused(registry, schema_type, text):
    with refused(42201):
        registry.register("a", text, schema_type=schema_type)


# --- deleting


def test_a_version_is_deleted_in_two_steps(registry):
    registry.register("a", record("x"))
    with refused(40407):
        registry.apply(decide_version_deletion, "a", 1, permanent=True)
    assert registry.apply(decide_version_deletion, "a", -1, permanent=False) == 1
    with refused(40406):
        registry.apply(decide_version_deletion, "a", 1, permanent=False)
    assert registry.apply(decide_version_deletion, "a", 1, permanent=True) == 1
    with refused(40401):
        registry.apply(decide_version_deletion, "a", 1, permanent=True)


def test_a_subject_is_deleted_in_two_steps_with_its_settings(registry):
    registry.register("a", record("x"))
    registry.register("a", record("x", "y+"))
    registry.apply(decide_config, "a", {"compatibility": "none"})
    with refused(40405):
        registry.apply(decide_subject_deletion, "a", permanent=True)
    assert registry.apply(decide_subject_deletion, "a", permanent=False) == [1, 2]
    with refused(40404):
        registry.apply(decide_subject_deletion, "a", permanent=False)
    assert registry.apply(decide_subject_deletion, "a", permanent=True) == [1, 2]
    assert registry.state.configs == {}
    with refused(40401):
        registry.apply(decide_subject_deletion, "a", permanent=False)


def test_a_deleted_schema_that_comes_back_is_a_new_version_of_the_same_id(registry):
    first = registry.register("a", record("x")).version
    registry.apply(decide_subject_deletion, "a", permanent=False)
    again = registry.register("a", record("x"))
    assert (again.version.version, again.version.id) == (2, first.id)
    assert [each.version for each in registry.state.versions("a", deleted=True)] == [2]


def test_a_context_goes_when_it_is_empty(registry):
    registry.register(":.c:a", record("x"))
    with refused(42211):
        registry.apply(decide_context_deletion, ".c")
    for permanent in (False, True):
        registry.apply(decide_subject_deletion, ":.c:a", permanent=permanent)
    registry.apply(decide_context_deletion, ".c")
    assert registry.state.all_contexts() == ["."]


# --- settings


def test_settings_are_changed_one_by_one(registry):
    assert registry.apply(decide_config, "a", {"compatibility": "full"}) == {"compatibility": "FULL"}
    assert registry.apply(decide_config, "a", {"normalize": True}) == {"normalize": True, "compatibility": "FULL"}
    assert registry.apply(decide_config, "a", {"compatibility": None}) == {"normalize": True}
    assert registry.apply(decide_config_deletion, "a")["normalize"] is True
    with refused(40401):
        registry.apply(decide_config_deletion, "a")
    with refused(42203):
        registry.apply(decide_config, None, {"compatibility": "sideways"})
    with refused(422):
        registry.apply(decide_config, None, {"normalize": "yes"})


def test_what_is_read_only_is_not_written(registry):
    registry.apply(decide_mode, None, "READONLY", force=False)
    with refused(42205):
        registry.apply(decide_config, "a", {"compatibility": "NONE"})
    with refused(42205):
        registry.register("a", record("x"))
    with refused(42204):
        registry.apply(decide_mode, None, "SIDEWAYS", force=False)
    assert registry.apply(decide_mode_deletion, None, recursive=False) == {"mode": "READONLY"}
    assert registry.register("a", record("x")).version.version == 1


def test_imports_bring_their_own_ids_and_versions(registry):
    with refused(42205):
        registry.register("a", record("x"), id=77)
    registry.register("other", record("o"))
    registry.apply(decide_mode, "a", "IMPORT", force=False)
    with refused(42205):
        registry.register("a", record("x"))
    found = registry.register("a", record("x"), id=77, version=5).version
    assert (found.id, found.version) == (77, 5)
    with refused(42205) as caught:
        registry.register("a", record("z"), id=77, version=6)
    assert "Overwrite new schema with id 77" in caught.value.message
    with refused(42205) as caught:
        registry.apply(decide_mode, "other", "IMPORT", force=False)
    assert "found existing subjects" in caught.value.message
    registry.apply(decide_mode, "a", "READWRITE", force=False)
    assert registry.register("a", record("x", "y+")).version.id == 78
