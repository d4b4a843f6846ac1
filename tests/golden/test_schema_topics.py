"""`_schemas` as other registries write it: ours writes the same bytes for the same steps, and reads all their forms."""

from tailrace.apps.registry.state.deciding import NewSchema, decide_registration, judge, prepare_registration
from tailrace.apps.registry.state.deleting import (
    decide_config,
    decide_mode,
    decide_mode_deletion,
    decide_subject_deletion,
    decide_version_deletion,
)
from tailrace.apps.registry.state.parsing import Parsed
from tailrace.apps.registry.state.records import Record, Reference
from tailrace.apps.registry.state.store import State
from tests.golden.schemas.topics import CONFLUENT, OTHERS, PROTO


def register(state: State, subject: str, text: str, kind: str = "AVRO", **fields) -> tuple[Record, ...]:
    prepared = prepare_registration(state, subject, NewSchema(kind, text, **fields), normalize=False)
    judgement = judge(prepared.question, Parsed(10))
    return decide_registration(state, subject, prepared, judgement, force=False, now_ms=0).records


def avro(name: str) -> str:
    return f'{{"type":"record","name":"{name}","fields":[]}}'


def take(state: State, step: tuple) -> list[Record]:
    """One after the other, as the topic would give them back."""
    taken = []
    for written in decide(state, step):
        for record in written:
            state.replay_record(record.key, record.value, 0)
            taken.append(record)
    return taken


def decide(state: State, step: tuple):
    match step:
        case "config", subject, level:
            yield decide_config(state, subject, {"compatibility": level}).records
        case "register", subject, name:
            yield register(state, subject, avro(name))
        case "import", subject, name, schema_id, version:
            yield register(state, subject, avro(name), id=schema_id, version=version)
        case "delete version", subject, number:
            yield decide_version_deletion(state, subject, number, permanent=False).records
        case "delete version for good", subject, number:
            yield decide_version_deletion(state, subject, number, permanent=True).records
        case "delete subject", subject:
            yield decide_subject_deletion(state, subject, permanent=False).records
        case "delete subject for good", subject:
            yield decide_subject_deletion(state, subject, permanent=True).records
        case "mode", subject, None:
            yield decide_mode_deletion(state, subject, recursive=False).records
        case "mode", subject, mode:
            yield decide_mode(state, subject, mode, force=False).records
        case "proto", subject:
            yield register(state, subject, PROTO.replace("\\n", "\n").replace('\\"', '"'), "PROTOBUF")
        case "json with a reference", subject, other:
            yield register(state, other, '{"type":"integer"}', "JSON")
            text = '{"properties":{"a":{"$ref":"Amount"}}}'
            yield register(state, subject, text, "JSON", references=(Reference("Amount", other, 1),))


def test_the_same_steps_write_the_same_bytes():
    state = State()
    for step, expected in CONFLUENT:
        found = [(each.key.decode(), each.value and each.value.decode()) for each in take(state, step)]
        assert found == expected, step


def replayed(records: list[tuple[str, str | None]]) -> State:
    state = State()
    for key, value in records:
        state.replay_record(key.encode(), None if value is None else value.encode(), 0)
    return state


def test_confluents_topic_is_read():
    state = replayed([each for _, written in CONFLUENT for each in written])
    assert state.subjects() == ["amount", "i", "money", "order", "t"]
    assert [(each.version, each.id) for each in state.versions("t", deleted=True)] == [(2, 2)]
    assert [(each.version, each.id) for each in state.versions("i")] == [(5, 42)]
    assert state.config_in_scope("t")["compatibilityLevel"] == "NONE"
    assert (state.mode_in_scope("i"), state.mode_in_scope("r")) == ("IMPORT", "READWRITE")
    assert [each.subject for each in state.referrers("amount", 1, deleted=False)] == ["order"]


def test_compaction_in_between_changes_nothing():
    """Of each key only the last record is left, in its place."""
    records = [each for _, written in CONFLUENT for each in written]
    last = {key: place for place, (key, _) in enumerate(records)}
    compacted = [each for place, each in enumerate(records) if last[each[0]] == place]
    whole, part = replayed(records), replayed(compacted)
    for subject in whole.subjects(deleted=True):
        assert whole.versions(subject, deleted=True) == part.versions(subject, deleted=True)
    assert (whole.configs, whole.modes) == (part.configs, part.modes)


def test_other_forms_are_read():
    state = replayed(OTHERS)
    assert state.subjects(deleted=True) == ["new", "old", "panda", "pb", "short", "spelled"]
    assert [state.find(name, 1).id for name in ("short", "spelled")] == [1, 2]
    assert state.find("spelled", 1).value.text.startswith('{"fields"')
    assert [state.find(name, 1).id for name in ("pb", "old", "panda", "new")] == [1, 2, 3, 4]
    assert state.find("pb", 1).value.schema_type == "PROTOBUF"
    assert state.find("new", 1).value.metadata["properties"] == {"owner": "me"}
    assert state.config_in_scope("pb")["compatibilityLevel"] == "FULL"
    assert state.config_in_scope("old")["compatibilityLevel"] == "NONE"
    assert state.contexts == {".c"}
    # What is written next goes on from there.
    assert b'"id":5' in register(state, "next", avro("N"))[-1].value
