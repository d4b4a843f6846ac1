"""What transactional producers ask of their coordinator, and the markers that it owes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.controller.image import MetadataImage, PartitionImage, TopicImage
from tailrace.coordinator.op import Result
from tailrace.coordinator.transactions.machine import TransactionMachine
from tailrace.coordinator.transactions.transaction import Transaction
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, NodeId, Uuid
from tailrace.wire.apis.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    WriteTxnMarkersRequest,
)
from tailrace.wire.schema import Message
from tests.unit.coordinator import scene
from tests.unit.coordinator.scene import Asked

ID = "payments"
_PARTITION = PartitionImage((NodeId(1),), (NodeId(1),), NodeId(1), 0, 0)


class Owed(Asked):
    """Stands for the one who writes the markers of a transaction."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(1)
        self.transactional_id = transactional_id


class Scene(scene.Scene):
    def __init__(self) -> None:
        self.producer_ids = list(range(5000, 5100))
        topics = {
            CONSUMER_OFFSETS_TOPIC: TopicImage(
                CONSUMER_OFFSETS_TOPIC, Uuid(bytes(16)), dict.fromkeys(range(50), _PARTITION)
            )
        }
        super().__init__(MetadataImage("cluster", topics=topics, features={"transaction.version": 2}))
        self.owed: list[Owed] = []

    def new_machine(self) -> TransactionMachine:
        return TransactionMachine(lambda: self.producer_ids.pop(0) if self.producer_ids else None, Owed)

    def durable(self, machine: Any) -> dict[str, Transaction]:
        """The epoch before the last is not stored."""
        return {name: each._replace(last_producer_epoch=-1) for name, each in machine.state.transactions.items()}

    def transaction(self, transactional_id: str = ID) -> Transaction:
        return self.machine.state.transactions[transactional_id]

    def apply(self, result: Result) -> None:
        super().apply(result)
        self.owed += [caller for caller, _ in result.answers if isinstance(caller, Owed)]

    def fail_over(self) -> None:
        self.owed = []
        super().fail_over()

    # ---- requests

    def ask(self, request: Message, version: int | None = None, client_id: str = "app") -> Any:
        """The answer; None if it waits for it."""
        self.last_asker = super().ask(request, version, client_id)
        return self.last_asker.answer

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
            self.call(), owed.transactional_id, producer_id=marker.producer_id, epoch=marker.producer_epoch
        )
        self.apply(completed)
        self.pass_ms(0)
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
    """The errors of the partitions in the answer to an AddPartitionsToTxn."""
    return [
        ErrorCode(result.partition_error_code)
        for topic in answer.results_by_transaction[0].topic_results
        for result in topic.results_by_partition
    ]
