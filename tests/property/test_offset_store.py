"""The store of offsets against a model that keeps every record and looks at all of them for each answer."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.coordinator.offsets.store import NO_PRODUCER, OffsetStore
from tailrace.wire.apis.stored_records import OffsetCommitKey, OffsetCommitValue
from tailrace.wire.record_envelopes import encode_coordinator_key, encode_coordinator_value

GROUPS, TOPICS, PARTITIONS, PRODUCERS = ("gruppe-ä",), ("t",), (0, 70_000), (7, 8)


class Place(NamedTuple):
    group_id: str
    topic: str
    partition: int


class Commit(NamedTuple):
    place: Place
    producer_id: int


class Tombstone(NamedTuple):
    place: Place


class Marker(NamedTuple):
    producer_id: int
    is_commit: bool


PLACES = [Place(group, topic, partition) for group in GROUPS for topic in TOPICS for partition in PARTITIONS]
places = st.sampled_from(PLACES)
producers = st.sampled_from(PRODUCERS)
transactional = st.builds(Commit, places, producers)
records = st.one_of(
    # Mostly transactions that cross each other.
    transactional,
    transactional,
    transactional,
    st.builds(Commit, places, st.just(NO_PRODUCER)),
    st.builds(Tombstone, places),
    st.builds(Marker, producers, st.just(True)),
    st.builds(Marker, producers, st.booleans()),
)
Record = Commit | Tombstone | Marker


class Model:
    """Offsets are the numbers of the records that committed them."""

    def __init__(self, log: list[Record]) -> None:
        self._log = log

    def offset(self, place: Place) -> int | None:
        """The offset of the last commit that counts; a tombstone takes all that were before it."""
        found = None
        for number in range(self._start(place), len(self._log)):
            record = self._log[number]
            if isinstance(record, Commit) and record.place == place and self._fate(number) == "counts":
                found = number
        return found

    def is_pending(self, place: Place) -> bool:
        return any(
            isinstance(record, Commit) and record.place == place and self._fate(number) == "waits"
            for number, record in enumerate(self._log)
            if number >= self._start(place)
        )

    def _start(self, place: Place) -> int:
        return max((number + 1 for number, record in enumerate(self._log) if record == Tombstone(place)), default=0)

    def _fate(self, number: int) -> str:
        record = self._log[number]
        assert isinstance(record, Commit)
        if record.producer_id == NO_PRODUCER:
            return "counts"
        for later in self._log[number:]:
            if isinstance(later, Marker) and later.producer_id == record.producer_id:
                return "counts" if later.is_commit else "is lost"
        return "waits"


@settings(max_examples=100)
@given(st.lists(records, min_size=12, max_size=30))
def test_the_store_is_what_its_records_say(log: list[Record]) -> None:
    store = OffsetStore()
    for number, record in enumerate(log):
        replay(store, number, record)
        check(store, Model(log[: number + 1]))


def check(store: OffsetStore, model: Model) -> None:
    expected = {place: model.offset(place) for place in PLACES}
    pending = {place: model.is_pending(place) for place in PLACES}
    found = {place: store.get(*place) for place in PLACES}
    assert {place: each and each.offset for place, each in found.items()} == expected
    assert {place: store.is_pending(*place) for place in PLACES} == pending
    assert len(store) == sum(offset is not None for offset in expected.values())
    if any(pending.values()) or len(store):
        assert set(store.group_ids()) == set(GROUPS)
    elif not store.has_open_transaction(GROUPS[0]):
        assert set(store.group_ids()) == set()


def replay(store: OffsetStore, number: int, record: Record) -> None:
    if isinstance(record, Marker):
        store.replay_marker(record.producer_id, is_commit=record.is_commit)
        return
    group_id, topic, partition = record.place
    key = encode_coordinator_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))
    if isinstance(record, Tombstone):
        store.replay_raw(key, None)
    else:
        value = OffsetCommitValue(offset=number, metadata="", commit_timestamp=1)
        store.replay_raw(key, encode_coordinator_value(value), record.producer_id)
