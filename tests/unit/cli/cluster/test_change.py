"""A broker that is added while the cluster changes, and while some questions fail."""

from argparse import Namespace

import pytest

from tailrace.cli import CommandError
from tailrace.cli.cluster.change import Change
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tailrace.wire.schema import Message
from tests.unit.client.peer import HANG_UP, Peer

PartitionAnswer = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


class ClusterOfTwo(Peer):
    """Broker 1 has all of topic t, and broker 2 is new. `refusals` are the codes of the first tries of a partition;
    `failures` are what the first tries of a request come to."""

    def __init__(self) -> None:
        super().__init__(partitions=4)
        self.refusals: dict[int, list[ErrorCode]] = {}
        self.failures: dict[type[Message], list[Message | str]] = {}
        self.begun: list[int] = []
        self.scripts |= {
            DescribeClusterRequest: self._describe,
            AlterPartitionReassignmentsRequest: self._reassign,
            ListPartitionReassignmentsRequest: lambda request: self._or(request, ListPartitionReassignmentsResponse()),
            ElectLeadersRequest: lambda request: self._or(request, ElectLeadersResponse()),
        }

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
                    self.begun.append(partition.partition_index)
                results.append(PartitionAnswer(partition_index=partition.partition_index, error_code=int(code)))
            answer.responses.append(
                AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name=topic.name, partitions=results)
            )
        return self._or(request, answer)


async def add(peer: ClusterOfTwo, *, wait: float = 20.0) -> Change:
    cluster = peer.cluster(retry_backoff_ms=1, retry_backoff_max_ms=5)
    change = Change(cluster, Namespace(at_once=2, json=True, wait=wait))
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
    ],
)
async def test_a_question_that_fails_once_is_asked_again(request_type: type[Message]):
    async with ClusterOfTwo() as peer:
        response = {
            DescribeClusterRequest: DescribeClusterResponse,
            AlterPartitionReassignmentsRequest: AlterPartitionReassignmentsResponse,
            ListPartitionReassignmentsRequest: ListPartitionReassignmentsResponse,
            ElectLeadersRequest: ElectLeadersResponse,
        }[request_type]
        peer.failures = {request_type: [response(error_code=ErrorCode.REQUEST_TIMED_OUT), HANG_UP]}
        await add(peer)
        assert len(peer.received(request_type)) >= 3
        assert set(peer.begun) == set(peer.begun[-2:]), "both partitions of its share are moved"


async def test_a_partition_that_cannot_be_moved_now_is_moved_later():
    async with ClusterOfTwo() as peer:
        peer.refusals = {index: [ErrorCode.REQUEST_TIMED_OUT] for index in range(4)}
        await add(peer)
        assert len(peer.begun) == 2


async def test_what_waiting_does_not_help_against_ends_it():
    async with ClusterOfTwo() as peer:
        peer.refusals = {index: [ErrorCode.INVALID_REPLICA_ASSIGNMENT] for index in range(4)}
        with pytest.raises(KafkaError, match="is not moved"):
            await add(peer)


async def test_who_runs_out_of_time_is_told_how_to_go_on():
    async with ClusterOfTwo() as peer:
        peer.refusals = {index: [ErrorCode.REQUEST_TIMED_OUT] * 100 for index in range(4)}
        with pytest.raises(CommandError, match="run: tailrace cluster add --broker 2"):
            await add(peer, wait=0.3)
