"""The share coordinator of one partition of __share_group_state: a pure machine, of the shape of
`coordinator.machine.GroupMachine`.

The log is not compacted: updates build on each other. What a snapshot has made superfluous goes by `renew`, which
writes everything once more: once that is committed, the log before it may be cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tailrace.controller.image import MetadataImage
from tailrace.coordinator.op import Call, Caller, Producer, Result, Steps, StoredRecord, Told, unchanged
from tailrace.coordinator.share_state.ops import OPS
from tailrace.coordinator.share_state.state import SharePlace, ShareState, read_snapshot, snapshot_record, tombstone
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid
from tailrace.model.ports import Bytes
from tailrace.wire.apis.stored_records import SHARE_STATE_RECORDS, ShareSnapshotValue, ShareUpdateValue
from tailrace.wire.record_envelopes import decode_coordinator_record
from tailrace.wire.schema import Message

# Written in one result, and forgotten in one step: a state may have some thousand ranges.
_STATES_PER_STEP = 20


class ShareStateMachine:
    def __init__(self) -> None:
        self.states: dict[SharePlace, ShareState] = {}
        self._work: list[Callable[[Call], Steps]] = []

    def op(self, call: Call, caller: Caller, request: Message) -> Result:
        """Raises KafkaError if the request fails as a whole."""
        op = OPS.get(request.api_key)
        if op is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"No share coordinator serves {type(request).__name__}.")
        return op(self.states, call, caller, request)

    def replay(
        self, key: Message, value: Message | None, _producer: Producer | None = None, _stored: object = None
    ) -> None:
        named: Any = key
        place = SharePlace(named.group_id, Uuid(named.topic_id), named.partition)
        if value is None:
            self.states.pop(place, None)
        elif isinstance(value, ShareSnapshotValue):
            self.states[place] = read_snapshot(value)
        else:
            assert isinstance(value, ShareUpdateValue), "there are two types of records"
            state = self.states.get(place)
            # Without its snapshot an update says nothing: it was left by a log that was cut off, or is of one deleted.
            if state is not None and state.snapshot_epoch == value.snapshot_epoch:
                self.states[place] = state.with_update(value)

    def replay_stored(self, key: Bytes, value: Bytes | None, producer: Producer | None = None) -> None:
        self.replay(*decode_coordinator_record(SHARE_STATE_RECORDS, key, value), producer)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        raise AssertionError(f"producer {producer_id} ended a transaction on __share_group_state ({is_commit=})")

    def on_loaded(self, call: Call) -> list[Result]:
        """Topics may have been deleted while nobody coordinated."""
        return [self._forget_deleted(call)]

    def on_image(self, call: Call, old: MetadataImage) -> list[Result]:
        return [self._forget_deleted(call)] if old.topic_names is not call.image.topic_names else []

    def _forget_deleted(self, call: Call) -> Result:
        gone = [place for place in self.states if place.topic_id not in call.image.topic_names]
        return Result([tombstone(place) for place in gone], on_refused=unchanged)

    def next_deadline_ms(self) -> float | None:
        return None

    def on_deadline(self, call: Call) -> Result | None:  # noqa: ARG002 - nothing is ever due
        return None

    def take_work(self, call: Call) -> Steps | None:
        return self._work.pop()(call) if self._work else None

    def renew(self, told: Told, done: Message) -> None:
        """Writes all states as snapshots; `told` hears `done` once they are committed."""
        self._work.append(lambda _call: self._renew(told, done, list(self.states)))

    def _renew(self, told: Told, done: Message, places: list[SharePlace]) -> Steps:
        yield
        records: list[StoredRecord] = []
        for place in places[:_STATES_PER_STEP]:
            state = self.states.get(place)
            if state is not None:
                records.append(snapshot_record(place, state._replace(snapshot_epoch=state.snapshot_epoch + 1)))
        left = places[_STATES_PER_STEP:]
        if left:
            self._work.append(lambda _call: self._renew(told, done, left))
            return Result(records)
        return Result(records, ((told, done),))

    def forget(self) -> Iterator[None]:
        self._work.clear()
        while self.states:
            for _ in range(min(_STATES_PER_STEP, len(self.states))):
                self.states.popitem()
            yield
