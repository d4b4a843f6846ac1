"""A small machine to try the runtime on: names with their last value, and a few ways to misbehave.

A request is an OffsetCommitRequest whose group_id says what to do:
    park       the caller is kept until `release`
    release    answers the parked ones, in one result with a record
    read       an answer without a record
    refuse     KafkaError          fail      a bug in the op
    poison     a record whose replay fails
    large      records too large for any batch; "large but repaired" knows what to do then
    unstorable  a record that its form does not allow
    work       leaves `work_steps` steps of work, then writes "worked"
    anything else writes a record of that name; with a member id, as a part of the transaction of producer 5
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tailrace.broker.context import RequestContext
from tailrace.broker.coordinators.calls import CoordinatorCall
from tailrace.broker.coordinators.shard import Shard
from tailrace.broker.node import Node
from tailrace.controller.image import MetadataImage
from tailrace.coordinator.op import Call, Caller, Producer, Result, Steps, StoredRecord
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.replica.partition import Partition
from tailrace.wire.apis.groups import OffsetCommitRequest, OffsetCommitResponse
from tailrace.wire.apis.stored_records import GROUP_RECORDS, OffsetCommitKey, OffsetCommitValue
from tailrace.wire.record_envelopes import decode_coordinator_record
from tailrace.wire.schema import Message

PRODUCER = Producer(5, 0)
_Topic = OffsetCommitRequest.OffsetCommitRequestTopic
_Partition = OffsetCommitRequest.OffsetCommitRequestPartition


def record(name: str, value: int | None = 1, metadata: str = "") -> StoredRecord:
    key = OffsetCommitKey(group=name, topic="t", partition=0)
    return StoredRecord(key, None if value is None else OffsetCommitValue(offset=value, metadata=metadata))


class Ledger:
    work_steps = 1
    work_step: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.pending: dict[int, dict[str, int]] = {}
        self.parked: list[Caller] = []
        self.due_ms: float | None = None
        self.due_count = 0
        self.loaded_count = 0
        self.images: list[MetadataImage] = []
        self._work: list[Callable[[Call], Steps]] = []

    def op(self, call: Call, caller: Caller, request: Any) -> Result:
        name = request.group_id
        answers = [(caller, OffsetCommitResponse())]
        match name:
            case "park":
                self.parked.append(caller)
                return Result()
            case "release":
                parked, self.parked = self.parked, []
                return Result([record(name)], [*((each, OffsetCommitResponse()) for each in parked), *answers])
            case "read":
                return Result(answers=answers)
            case "refuse":
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, "no")
            case "fail":
                raise LookupError("a planted bug")
            case "large":
                return Result([record(name, metadata="x" * 30_000) for _ in range(50)], answers)
            case "large but repaired":
                records = [record(name, metadata="x" * 30_000) for _ in range(50)]
                return Result(records, answers, on_refused=lambda _call: Result([record("repaired")]))
            case "unstorable":
                return Result([record("x" * 40_000)], answers)
            case "work":
                self._work.append(self._steps)
                return Result(answers=answers)
        return Result([record(name)], answers, PRODUCER if request.member_id else None)

    def _steps(self, call: Call) -> Steps:
        for _ in range(self.work_steps):
            self.work_step()
            yield
        return Result([record("worked")])

    def replay(
        self,
        key: Message,
        value: Message | None,
        producer: Producer | None = None,
        stored: tuple[bytes, bytes | None] | None = None,
    ) -> None:
        assert isinstance(key, OffsetCommitKey)
        if key.group == "poison":
            raise LookupError("a planted bug")
        values = self.values if producer is None else self.pending.setdefault(producer.producer_id, {})
        if value is None:
            values.pop(key.group, None)
        else:
            assert isinstance(value, OffsetCommitValue)
            values[key.group] = value.offset

    def replay_stored(self, key: bytes, value: bytes | None, producer: Producer | None = None) -> None:
        self.replay(*decode_coordinator_record(GROUP_RECORDS, key, value), producer)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        ended = self.pending.pop(producer_id, {})
        if is_commit:
            self.values.update(ended)

    def on_loaded(self, call: Call) -> list[Result]:
        self.loaded_count += 1
        return [Result()]

    def on_image(self, call: Call, old: MetadataImage) -> list[Result]:
        self.images.append(old)
        return [Result([record("image")])]

    def next_deadline_ms(self) -> float | None:
        return self.due_ms

    def on_deadline(self, call: Call) -> Result | None:
        if self.due_ms is None or call.monotonic_ms < self.due_ms:
            return None
        self.due_ms = None
        self.due_count += 1
        return Result([record("due")])

    def forget(self) -> Iterator[None]:
        while self.values:
            self.values.popitem()
            yield

    def take_work(self, call: Call) -> Steps | None:
        return self._work.pop(0)(call) if self._work else None


def make_call(group_id: str, member_id: str = "") -> CoordinatorCall:
    context = RequestContext(
        api_key=8,
        api_version=9,
        correlation_id=1,
        client_id="client",
        peer="127.0.0.1:1",
        listener=None,  # type: ignore[arg-type]
    )
    topics = [_Topic(name="t", partitions=[_Partition(partition_index=0)])]
    return CoordinatorCall(context, OffsetCommitRequest(group_id=group_id, member_id=member_id, topics=topics))


def error_of(call: CoordinatorCall) -> ErrorCode | None:
    """None while there is no answer."""
    if call.answer is None:
        return None
    assert isinstance(call.answer, OffsetCommitResponse)
    return ErrorCode(call.answer.topics[0].partitions[0].error_code) if call.answer.topics else ErrorCode.NONE


class Desk:
    """A shard with a ledger on a partition, and what is asked of it."""

    def __init__(self, node: Node, partition: Partition) -> None:
        self.partition = partition
        self.to_load: list[Shard] = []
        self.shard = Shard(
            node, 0, leader_epoch=partition.leader_epoch, make_machine=Ledger, load_soon=self.to_load.append
        )

    @property
    def ledger(self) -> Ledger:
        assert isinstance(self.shard.machine, Ledger)
        return self.shard.machine

    def open(self) -> None:
        """Opens the shard of a partition without records."""
        self.shard.begin_loading()
        self.shard.activate(self.partition, self.partition.log.log_end_offset)

    def ask(self, group_id: str, member_id: str = "") -> CoordinatorCall:
        call = make_call(group_id, member_id)
        self.shard.submit(call)
        return call


@contextmanager
def working(*, steps: int, step: Callable[[], None]) -> Iterator[None]:
    before = Ledger.work_steps, Ledger.work_step
    Ledger.work_steps, Ledger.work_step = steps, staticmethod(step)
    try:
        yield
    finally:
        Ledger.work_steps, Ledger.work_step = before[0], staticmethod(before[1])
