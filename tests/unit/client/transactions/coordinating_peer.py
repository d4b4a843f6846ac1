"""A scripted broker that coordinates transactions and groups, and leads every partition. It keeps what came."""

from __future__ import annotations

from tailrace.client.metadata import Cluster
from tailrace.client.producer import ProducerOptions
from tailrace.client.transactions.producer import TransactionalProducer, TransactionOptions
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.data import ApiVersionsRequest, ApiVersionsResponse, ProduceRequest, ProduceResponse
from tailrace.wire.apis.groups import FindCoordinatorRequest, FindCoordinatorResponse
from tailrace.wire.apis.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from tailrace.wire.records import BatchHeader, read_header
from tailrace.wire.schema import Message
from tests.unit.client.peer import Peer

PRODUCER_ID = 77
_NAMES = {
    InitProducerIdRequest: "init",
    AddPartitionsToTxnRequest: "add partitions",
    AddOffsetsToTxnRequest: "add offsets",
    TxnOffsetCommitRequest: "offsets",
    ProduceRequest: "produce",
    EndTxnRequest: "end",
}


class CoordinatingPeer(Peer):
    """`plan` holds, for a kind of request, what to do with the next ones: an error code, or HANG_UP or SILENCE."""

    def __init__(self, *, transaction_version: int = 2, partitions: int = 2) -> None:
        super().__init__(partitions=partitions)
        self.plan: dict[type[Message], list[ErrorCode | str]] = {}
        self.epoch = -1
        self._transaction_version = transaction_version
        self.scripts |= {
            ApiVersionsRequest: self._versions_with_features,
            FindCoordinatorRequest: self._find_coordinator,
            InitProducerIdRequest: self._init,
            AddPartitionsToTxnRequest: self._add_partitions,
            AddOffsetsToTxnRequest: lambda _request: AddOffsetsToTxnResponse(),
            TxnOffsetCommitRequest: self._commit_offsets,
            ProduceRequest: self._produce,
            EndTxnRequest: self._end,
        }

    def story(self) -> list[str]:
        """The kinds of the requests about transactions, in order."""
        return [_NAMES[type(request)] for request in self.requests if type(request) in _NAMES]

    def versions_of(self, kind: type[Message]) -> set[int]:
        return {version for found, version in self.versions if found is kind}

    def batches(self) -> list[BatchHeader]:
        requests = [request for request in self.requests if isinstance(request, ProduceRequest)]
        return [read_header(bytes(each.topic_data[0].partition_data[0].records)) for each in requests]

    def producer(self, cluster: Cluster, **options: int) -> TransactionalProducer:
        producing = ProducerOptions(linger_ms=1, delivery_timeout_ms=5000)
        return TransactionalProducer(cluster, TransactionOptions("id", producing=producing, **options))

    def _answer(self, frame: bytes) -> bytes | str:
        lost = {kind for kind, planned in self.plan.items() if planned and isinstance(planned[0], str)}
        answer = super()._answer(frame)
        kind = type(self.requests[-1])
        # As if the broker had done what it was asked for, and its answer was lost.
        return str(self.plan[kind].pop(0)) if kind in lost else answer

    def _code(self, request: Message) -> ErrorCode:
        planned = self.plan.get(type(request))
        if planned and isinstance(planned[0], ErrorCode):
            return ErrorCode(planned.pop(0))
        return ErrorCode.NONE

    def _versions_with_features(self, request: Message) -> Message:
        answer = self._api_versions(request)
        assert isinstance(answer, ApiVersionsResponse)
        answer.finalized_features = [
            ApiVersionsResponse.FinalizedFeatureKey(
                name="transaction.version", max_version_level=self._transaction_version
            )
        ]
        return answer

    def _find_coordinator(self, request: FindCoordinatorRequest) -> Message:
        (key,) = request.coordinator_keys
        found = FindCoordinatorResponse.Coordinator(key=key, node_id=1, host=self.address.host, port=self.address.port)
        return FindCoordinatorResponse(coordinators=[found])

    def _init(self, request: InitProducerIdRequest) -> Message:
        code = self._code(request)
        self.epoch += code is ErrorCode.NONE
        return InitProducerIdResponse(error_code=code, producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def _add_partitions(self, request: AddPartitionsToTxnRequest) -> Message:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                            partition_index=index, partition_error_code=self._code(request)
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def _commit_offsets(self, request: TxnOffsetCommitRequest) -> Message:
        code = self._code(request)
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                            partition_index=each.partition_index, error_code=code
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _produce(self, request: ProduceRequest) -> Message:
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        result = ProduceResponse.PartitionProduceResponse(index=data.index, error_code=self._code(request))
        return ProduceResponse(
            responses=[ProduceResponse.TopicProduceResponse(name=topic.name, partition_responses=[result])]
        )

    def _end(self, request: EndTxnRequest) -> Message:
        code = self._code(request)
        self.epoch += code is ErrorCode.NONE and self._transaction_version >= 2
        return EndTxnResponse(error_code=code, producer_id=PRODUCER_ID, producer_epoch=self.epoch)
