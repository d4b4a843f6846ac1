"""Transactional producers that talk to a whole broker, request by request."""

from typing import Any

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import FindCoordinatorRequest
from tailrace.wire.apis.transactions import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    WriteTxnMarkersRequest,
)
from tests.unit.broker.world import Peer, World, batch, create_topic, produce, produced

SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}
_TRANSACTION = 1
# Versions of clients of transaction.version 1, and of 2.
OLD = {"init": 4, "produce": 11, "end": 4}
NEW = {"init": 5, "produce": 12, "end": 5}


async def prepare(world: World, *topics: str) -> Peer:
    """A peer, once there is a coordinator."""
    peer = await world.connect()
    for topic in topics:
        await create_topic(peer, topic)
    found = await peer.request(FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=["x"]), 6)
    assert found.coordinators[0].error_code == 0
    return peer


class Producer:
    def __init__(self, peer: Peer, versions: dict[str, int], transactional_id: str = "x") -> None:
        self.peer = peer
        self.producer_id = self.epoch = -1
        self._versions = versions
        self._transactional_id = transactional_id
        self._sequences: dict[str, int] = {}

    async def init(self, *, timeout_ms: int = 60_000) -> None:
        request = InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=timeout_ms)
        answer = await self.peer.request(request, self._versions["init"])
        assert answer.error_code == 0, answer
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    async def add(self, topic: str) -> None:
        """As older clients do."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        answer = await self.peer.request(request, 3)
        results = answer.results_by_topic_v3_and_below[0].results_by_partition
        assert [each.partition_error_code for each in results] == [0]

    def records(self, topic: str, *values: bytes, **options: Any) -> bytes:
        sequence = self._sequences.get(topic, 0)
        self._sequences[topic] = sequence + len(values)
        return batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
            **options,
        )

    async def write(self, topic: str, records: bytes) -> ErrorCode:
        request = produce(topic, records, acks=-1, transactional_id=self._transactional_id)
        answer = await self.peer.request(request, self._versions["produce"])
        return ErrorCode(produced(answer).error_code)

    async def end(self, *, is_commit: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )
        answer = await self.peer.request(request, self._versions["end"])
        if answer.error_code == 0 and self._versions["end"] >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        return ErrorCode(answer.error_code)

    async def state(self) -> str:
        answer = await self.peer.request(DescribeTransactionsRequest(transactional_ids=[self._transactional_id]), 0)
        return str(answer.transaction_states[0].transaction_state)

    def marker(self, *topics: str, is_commit: bool = False) -> WriteTxnMarkersRequest:
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            transaction_result=is_commit,
            topics=[
                WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[0]) for topic in topics
            ],
        )
        return WriteTxnMarkersRequest(markers=[marker])
