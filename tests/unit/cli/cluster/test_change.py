"""A broker that is added while the cluster changes, and while some questions fail."""

from argparse import Namespace

import pytest

from tailrace.cli import CommandError
from tailrace.cli.cluster.change import Change
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse
from tailrace.wire.schema import Message
from tests.unit.client.peer import HANG_UP, Peer

PartitionAnswer = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse

PLAIN = {
    DescribeClusterRequest: DescribeClusterResponse,
    AlterPartitionReassignmentsRequest: AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest: ListPartitionReassignmentsResponse,
    ElectLeadersRequest: ElectLeadersResponse,
    DescribeConfigsRequest: DescribeConfigsResponse,
    DescribeLogDirsRequest: DescribeLogDirsResponse,
    IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse,
}


class ClusterOfTwo(Peer):
    """Broker 1 has all of topic t, and broker 2 is new. `refusals` are the codes of the first tries of a partition;
    `failures` are what the first tries of a request come to. A move is over at once."""

    def __init__(self) -> None:
        super().__init__(partitions=4)
        self.refusals: dict[int, list[ErrorCode]] = {}
        self.failures: dict[type[Message], list[Message | str]] = {}
        self.replicas: dict[int, list[int]] = {}
        self.deleted: set[int] = set()
        self.scripts |= {
            kind: lambda request, answer=answer: self._or(request, answer()) for kind, answer in PLAIN.items()
        }
        self.scripts |= {
            DescribeClusterRequest: self._describe,
            AlterPartitionReassignmentsRequest: self._reassign,
            MetadataRequest: self._metadata_with_moves,
        }

    @property
    def begun(self) -> set[int]:
        return {*self.replicas}

    def _metadata_with_moves(self, request: Message) -> Message:
        answer = self._metadata(request)
        assert isinstance(answer, MetadataResponse)
        host, port = self.address
        answer.brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=each, host=host, port=port) for each in (1, 2)
        ]
        for topic in answer.topics:
            topic.partitions = [each for each in topic.partitions if each.partition_index not in self.deleted]
            for each in topic.partitions:
                replicas = self.replicas.get(each.partition_index, [1])
                each.leader_id, each.replica_nodes, each.isr_nodes = replicas[0], replicas, replicas
        return answer

    def _or(self, request: Message, answer: Message) -> Message | str:
        failures = self.failures.get(type(request))
        return failures.pop(0) if failures else answer

    def _describe(self, request: Message) -> Message | str:
        broker = DescribeClusterResponse.DescribeClusterBroker
        host, port = self.address
        brokers = [broker(broker_id=node_id, host=host, port=port) for node_id in (1, 2)]
        return self._or(request, DescribeClusterResponse(cluster_id="c", controller_id=1, brokers=brokers))

    def _reassign(self, request: Message) -> Message | str:
        answer = AlterPartitionReassignmentsResponse()
        for topic in request.topics:
            results = []
            for partition in topic.partitions:
                codes = self.refusals.get(partition.partition_index)
                code = codes.pop(0) if codes else ErrorCode.NONE
                if not code:
                    self.replicas[partition.partition_index] = partition.replicas
                if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self.deleted.add(partition.partition_index)
                results.append(PartitionAnswer(partition_index=partition.partition_index, error_code=int(code)))
            answer.responses.append(
                AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name=topic.name, partitions=results)
            )
        return self._or(request, answer)


async def add(peer: ClusterOfTwo, *, wait: float = 20.0, patience: float = 30.0) -> Change:
    cluster = peer.cluster(retry_backoff_ms=1, retry_backoff_max_ms=5)
    options = Namespace(
        at_once=2,
        json=True,
        wait=wait,
        patience=patience,
        throttle=10**7,
        network=None,
        metrics=None,
        disk_max=0.8,
        spread=0.1,
    )
    change = Change(cluster, options)
    try:
        await change.add(2)
    finally:
        cluster.close()
    return change


async def test_a_topic_that_is_deleted_meanwhile_needs_no_move(capsys: pytest.CaptureFixture[str]):
    async with ClusterOfTwo() as peer:
        once = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]  # Of whichever partition comes first.
        peer.refusals = dict.fromkeys(range(4), once)
        await add(peer)
    assert '"partitions_moved": 1' in capsys.readouterr().out
    assert len(peer.begun) == 1, "one of the two moves was not needed"


@pytest.mark.parametrize(
    "request_type",
    [
        DescribeClusterRequest,
        AlterPartitionReassignmentsRequest,
        ListPartitionReassignmentsRequest,
        ElectLeadersRequest,
        DescribeConfigsRequest,
        IncrementalAlterConfigsRequest,
    ],
)
async def test_a_question_that_fails_once_is_asked_again(request_type: type[Message]):
    async with ClusterOfTwo() as peer:
        response = PLAIN[request_type]
        has_code = "error_code" in response.__annotations__
        failure = [response(error_code=ErrorCode.REQUEST_TIMED_OUT)] if has_code else [HANG_UP]
        peer.failures = {request_type: [*failure, HANG_UP]}
        await add(peer)
        assert len(peer.received(request_type)) >= 3
        assert len(peer.begun) == 2, "both partitions of its share are moved"


async def test_a_partition_that_cannot_be_moved_now_is_moved_later():
    async with ClusterOfTwo() as peer:
        peer.refusals = {index: [ErrorCode.REQUEST_TIMED_OUT] for index in range(4)}
        await add(peer)
        assert len(peer.begun) == 2


async def test_what_waiting_does_not_help_against_ends_it():
    async with ClusterOfTwo() as peer:
        peer.refusals = {index: [ErrorCode.INVALID_REPLICA_ASSIGNMENT] for index in range(4)}
        with pytest.raises(CommandError, match="is not moved"):
            await add(peer)


async def test_who_runs_out_of_time_is_told_how_to_go_on():
    async with ClusterOfTwo() as peer:
        peer.refusals = {index: [ErrorCode.REQUEST_TIMED_OUT] * 100 for index in range(4)}
        with pytest.raises(CommandError, match="run: tailrace cluster add --broker 2"):
            await add(peer, wait=0.3)
