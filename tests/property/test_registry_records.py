"""Whatever stands in `_schemas`: a registry takes it, or tells that it is damaged, and does what it is asked."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tailrace.apps.registry.errors import RegistryError
from tailrace.apps.registry.state.deciding import NewSchema, decide_registration, judge, prepare_registration
from tailrace.apps.registry.state.deleting import (
    decide_config,
    decide_mode,
    decide_mode_deletion,
    decide_subject_deletion,
    decide_version_deletion,
)
from tailrace.apps.registry.state.parsing import Parsed
from tailrace.apps.registry.state.records import DamagedRecordError
from tailrace.apps.registry.state.store import State
from tailrace.apps.registry.web.answers import version_answer
from tests.golden.schemas.topics import CONFLUENT, OTHERS

RECORDS = [each for _, written in CONFLUENT for each in written] + list(OTHERS)
SUBJECTS = ("t", "i", "order", "amount", ":.", ":.c:", ":.c:n", "none")
FIELDS = sorted(
    {name for pair in RECORDS for text in pair if text for name in json.loads(text)} | {"alias", "metadata"}
)
PARSED = Parsed(100)

values = st.recursive(
    st.sampled_from([None, True, 0, -1, 1, 2**31, 2**70, 1.5, "", "a", "\ud800", "NONE", "IMPORT", "order"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "subject", "version", "properties", "tags", "domainRules"]), inner)
    ),
    max_leaves=4,
)
# Of which record what is changed: a field of its key or value, or a byte.
changes = st.tuples(
    st.integers(0, len(RECORDS) - 1), st.booleans(), st.sampled_from(FIELDS) | st.integers(0, 200), values
)


def changed(text: str | None, where: str | int, value: Any) -> bytes:
    if isinstance(where, int):
        data = bytearray((text or "").encode())
        if where < len(data):
            data[where] ^= 0x20
        return bytes(data)
    return json.dumps({**json.loads(text or "{}"), where: value}).encode()


@given(st.lists(changes, min_size=1, max_size=6), st.sampled_from(SUBJECTS), st.booleans())
def test_damage_stops_nothing(found, subject, permanent):
    records = [(key.encode(), None if value is None else value.encode()) for key, value in RECORDS]
    for index, in_key, where, value in found:
        key, content = RECORDS[index]
        if in_key:
            records[index] = changed(key, where, value), records[index][1]
        else:
            records[index] = records[index][0], changed(content, where, value)
    state = State()
    for key, content in records:
        try:
            state.replay_record(key, content, 0)
        except DamagedRecordError:
            continue
    look(state)
    for decide in (
        lambda: decide_config(state, subject, {"compatibility": "FULL"}).records,
        lambda: register(state, subject),
        lambda: decide_version_deletion(state, subject, 1, permanent=permanent).records,
        lambda: decide_subject_deletion(state, subject, permanent=permanent).records,
        lambda: decide_mode(state, subject, "IMPORT", force=permanent).records,
        lambda: decide_mode_deletion(state, subject, recursive=permanent).records,
    ):
        try:
            written = decide()
        except RegistryError:
            continue
        # What it writes itself is never damaged.
        for each in written:
            state.replay_record(each.key, each.value, 0)
    look(state)


def look(state: State) -> None:
    for subject in state.subjects(deleted=True):
        state.config_in_scope(subject), state.mode_in_scope(subject)
        for version in state.versions(subject, deleted=True):
            json.dumps(version_answer(version, version.value.text))
            state.referrers(subject, version.version, deleted=True)
    state.aliases("")


def register(state: State, subject: str):
    text = json.dumps({"type": "record", "name": "New", "fields": []})
    prepared = prepare_registration(state, subject, NewSchema("AVRO", text), normalize=False)
    judgement = judge(prepared.question, PARSED)
    return decide_registration(state, subject, prepared, judgement, force=False, now_ms=0).records
