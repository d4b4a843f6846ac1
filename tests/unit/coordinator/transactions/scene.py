"""One partition of __transaction_state with its machine: what a runtime does with results, without a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.controller.image import MetadataImage, PartitionImage, TopicImage
from tailrace.coordinator.op import Call, Caller, Result
from tailrace.coordinator.transactions.machine import TransactionMachine
from tailrace.coordinator.transactions.transaction import Transaction
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, NodeId, Uuid
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    WriteTxnMarkersRequest,
)
from tailrace.wire.schema import Message
from tailrace.wire.stored import encode_coordinator_key, encode_coordinator_value

ID = "payments"
_PARTITION = PartitionImage((NodeId(1),), (NodeId(1),), NodeId(1), 0, 0)


class Asker:
    """A caller that keeps its answer."""

    def __init__(self, api_version: int) -> None:
        self.api_version = api_version
        self.client_id, self.client_host, self.is_over = "client", "/127.0.0.1", False
        self.answer: Any = None


class Owed(Asker):
    """Stands for the one who writes the markers of a transaction."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(0)
        self.transactional_id = transactional_id


class Scene:
    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.producer_ids = list(range(5000, 5100))
        self.owed: list[Owed] = []
        topics = {
            CONSUMER_OFFSETS_TOPIC: TopicImage(
                CONSUMER_OFFSETS_TOPIC, Uuid(bytes(16)), dict.fromkeys(range(50), _PARTITION)
            )
        }
        self.image = MetadataImage("cluster", topics=topics, features={"transaction.version": 2})
        self.config = BrokerConfig(node_id=1)
        self.machine = self._new_machine()

    def _new_machine(self) -> TransactionMachine:
        return TransactionMachine(lambda: self.producer_ids.pop(0) if self.producer_ids else None, self._owe)

    def _owe(self, transactional_id: str) -> Caller:
        return Owed(transactional_id)

    @property
    def call(self) -> Call:
        return Call(self.now_ms, float(self.now_ms), self.image, self.config, SimRandom(1))

    def transaction(self, transactional_id: str = ID) -> Transaction:
        return self.machine.state.transactions[transactional_id]

    # ---- the runtime

    def ask(self, request: Message, api_version: int) -> Any:
        """The answer; None if it waits."""
        asker = Asker(api_version)
        self.take(self.machine.op(self.call, asker, request))
        self.last_asker = asker
        return asker.answer

    def refusal(self, request: Message, api_version: int) -> ErrorCode:
        try:
            answer = self.ask(request, api_version)
        except KafkaError as error:
            return error.code
        raise AssertionError(f"it was answered with {answer}")

    def take(self, result: Result) -> None:
        for key, value, version in result.records:
            self.machine.replay(key, value)
            stored = None if value is None else encode_coordinator_value(value, version)
            self.log.append((encode_coordinator_key(key), stored))
        for caller, answer in result.answers:
            assert isinstance(caller, Asker)
            assert caller.answer is None, "a caller is answered once"
            caller.answer = answer
            if isinstance(caller, Owed):
                self.owed.append(caller)

    def fail_over(self) -> None:
        """Another broker reads the log."""
        self.machine, self.owed = self._new_machine(), []
        for key, value in self.log:
            self.machine.replay_stored(key, value)
        for result in self.machine.on_loaded(self.call):
            self.take(result)

    def wait(self, ms: int) -> None:
        """Time passes, and what is due is done."""
        self.now_ms += ms
        for _ in range(100):
            result = self.machine.on_deadline(self.call)
            if result is None:
                break
            self.take(result)
        while (steps := self.machine.take_work(self.call)) is not None:
            try:
                while True:
                    next(steps)
            except StopIteration as done:
                self.take(done.value)

    # ---- requests

    def init(self, *, version: int = 5, timeout_ms: int = 60_000, expected: tuple[int, int] = (-1, -1)) -> Any:
        return self.ask(init_request(timeout_ms=timeout_ms, expected=expected), version)

    def add(
        self,
        producer: tuple[int, int],
        partitions: Sequence[tuple[str, int]],
        *,
        version: int = 3,
        verify: bool = False,
    ) -> Any:
        return self.ask(add_request(producer, partitions, verify=verify), version)

    def end(self, producer: tuple[int, int], *, commit: bool = True, version: int = 5) -> Any:
        return self.ask(end_request(producer, commit=commit), version)

    def write_markers(self) -> WriteTxnMarkersRequest.WritableTxnMarker:
        """Those that are owed, all written; gives them."""
        owed = self.owed.pop()
        (marker,) = owed.answer.markers
        completed = self.machine.complete(
            self.call, owed.transactional_id, producer_id=marker.producer_id, epoch=marker.producer_epoch
        )
        self.take(completed)
        self.wait(0)
        return marker


def init_request(*, timeout_ms: int = 60_000, expected: tuple[int, int] = (-1, -1)) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=ID, transaction_timeout_ms=timeout_ms, producer_id=expected[0], producer_epoch=expected[1]
    )


def add_request(
    producer: tuple[int, int], partitions: Sequence[tuple[str, int]], *, verify: bool = False
) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=ID,
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=verify,
        topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=indexes)
            for topic, indexes in topics.items()
        ],
    )
    return AddPartitionsToTxnRequest(transactions=[asked])


def offsets_request(producer: tuple[int, int], group: str = "g") -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], group_id=group
    )


def end_request(producer: tuple[int, int], *, commit: bool = True) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], committed=commit)


def errors_of(answer: Any) -> list[ErrorCode]:
    """Of the partitions of an AddPartitionsToTxn."""
    return [
        ErrorCode(result.partition_error_code)
        for topic in answer.results_by_transaction[0].topic_results
        for result in topic.results_by_partition
    ]
