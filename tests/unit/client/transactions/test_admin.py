"""Hanging transactions where the scripted broker's leaders and coordinators disagree."""

from __future__ import annotations

import pytest

from tailrace.client.transactions.admin import TransactionAdmin
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.wire.apis.data import ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, MetadataResponse
from tailrace.wire.apis.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tailrace.wire.schema import Message
from tests.unit.client.peer import Peer

T0 = TopicPartition("t", 0)
STATE_TOPIC = "__transaction_state"


class Scene(Peer):
    """Producer 7 has a transaction open in t-0 since offset 40, in epoch 3. `described` is what its coordinator has."""

    def __init__(self, described: DescribeTransactionsResponse.TransactionState | None, *, is_led: bool = True) -> None:
        super().__init__()
        self.described = described
        self.marker_code = ErrorCode.NONE
        self._is_led = is_led
        self.scripts |= {
            MetadataRequest: self._metadata_with_states,
            ListOffsetsRequest: self._list_offsets,
            DescribeProducersRequest: self._describe_producers,
            ListTransactionsRequest: self._list,
            DescribeTransactionsRequest: lambda _request: DescribeTransactionsResponse(
                transaction_states=[self.described] if self.described else []
            ),
            WriteTxnMarkersRequest: self._write_marker,
        }

    def _metadata_with_states(self, request: Message) -> Message:
        answer = self._metadata(request)
        assert isinstance(answer, MetadataResponse)
        for topic in answer.topics:
            if topic.name == STATE_TOPIC:
                topic.error_code = ErrorCode.NONE
                topic.partitions = [
                    MetadataResponse.MetadataResponsePartition(partition_index=0, leader_id=1 if self._is_led else -1)
                ]
        return answer

    def _list_offsets(self, request: ListOffsetsRequest) -> Message:
        offset = 40 if request.isolation_level else 50
        result = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[result])])

    def _describe_producers(self, _request: Message) -> Message:
        states = [
            DescribeProducersResponse.ProducerState(
                producer_id=7, producer_epoch=3, last_timestamp=10**15, coordinator_epoch=2, current_txn_start_offset=40
            ),
            DescribeProducersResponse.ProducerState(producer_id=8, producer_epoch=0),
        ]
        partition = DescribeProducersResponse.PartitionResponse(partition_index=0, active_producers=states)
        return DescribeProducersResponse(
            topics=[DescribeProducersResponse.TopicResponse(name="t", partitions=[partition])]
        )

    def _list(self, request: ListTransactionsRequest) -> Message:
        found = self.described
        if found is None or (request.state_filters and found.transaction_state not in request.state_filters):
            return ListTransactionsResponse()
        listed = ListTransactionsResponse.TransactionState(
            transactional_id=found.transactional_id,
            producer_id=found.producer_id,
            transaction_state=found.transaction_state,
        )
        return ListTransactionsResponse(transaction_states=[listed])

    def _write_marker(self, request: WriteTxnMarkersRequest) -> Message:
        result = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
            partition_index=0, error_code=self.marker_code
        )
        topic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name="t", partitions=[result])
        return WriteTxnMarkersResponse(
            markers=[WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=7, topics=[topic])]
        )


def described(state: str, epoch: int, *, topic: str = "t") -> DescribeTransactionsResponse.TransactionState:
    return DescribeTransactionsResponse.TransactionState(
        transactional_id="id",
        transaction_state=state,
        transaction_timeout_ms=60_000,
        producer_id=7,
        producer_epoch=epoch,
        topics=[DescribeTransactionsResponse.TopicData(topic=topic, partitions=[0])],
    )


@pytest.mark.parametrize(
    ("known", "hangs"),
    [
        (described("Ongoing", 3), False),
        (described("PrepareCommit", 3), False),  # version 1
        (described("PrepareCommit", 4), False),  # version 2: the decision has raised the epoch
        (described("Ongoing", 4), True),  # a later transaction
        (described("CompleteCommit", 4), True),
        (described("Ongoing", 3, topic="other"), True),
        (None, True),
    ],
)
async def test_what_no_coordinator_will_end_hangs(
    known: DescribeTransactionsResponse.TransactionState | None, hangs: bool
):
    async with Scene(known) as scene:
        cluster = scene.cluster()
        found = await TransactionAdmin(cluster).find_hanging([T0], max_age_ms=60_000)
        expected = [(7, 3, 40, "id" if known else None, "no coordinator has it open")] if hangs else []
        assert [(*each.transaction[1:4], each.transactional_id, each.reason) for each in found] == expected
        cluster.close()


async def test_while_a_coordinator_is_away_nothing_is_said_to_hang():
    async with Scene(None, is_led=False) as scene:
        cluster = scene.cluster(request_timeout_ms=100)
        with pytest.raises(KafkaError, match="without a leader"):
            await TransactionAdmin(cluster).find_hanging([T0], max_age_ms=60_000)
        cluster.close()


async def test_the_marker_of_an_abort_carries_what_the_leader_has():
    async with Scene(None) as scene:
        cluster = scene.cluster()
        admin = TransactionAdmin(cluster)
        (found,) = await admin.open_transactions([T0])
        await admin.abort(found)
        (request,) = scene.received(WriteTxnMarkersRequest)
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 2)
        assert not marker.transaction_result
        scene.marker_code = ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(KafkaError, match="does not take the marker"):
            await admin.abort(found)
        cluster.close()
