"""Finding brokers and leaders."""

import asyncio

import pytest

from tailrace.client.connection import Address
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, TopicPartition
from tailrace.real.ports import real_ports
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse

from .peer import HANG_UP, Peer


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (" a:1 , , b ", [("a", 1), ("b", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_bootstrap_lists(text: str, addresses: list):
    assert list(parse_bootstrap(text)) == addresses


@pytest.mark.parametrize("text", ["", " , ", "a:0", "a:65536", "a:x", ":9092", "a:-1", "a:"])
def test_bootstrap_lists_that_make_no_sense(text: str):
    with pytest.raises(ValueError, match="host:port"):
        parse_bootstrap(text)


def test_an_address_reads_as_it_is_written():
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert str(Address("a", 1)) == "a:1"


async def test_a_dead_bootstrap_address_is_passed_over():
    async with Peer() as gone:
        dead = gone.address
    async with Peer() as peer:
        cluster = Cluster(real_ports(), [dead, peer.address])
        assert (await cluster.topic("t")).partitions[0].leader_id == 1
        assert cluster.brokers == {1: peer.address}
        cluster.close()


async def test_all_bootstrap_addresses_dead():
    async with Peer() as gone:
        dead = gone.address
    with pytest.raises(KafkaError, match="tailrace up"):
        await Cluster(real_ports(), [dead]).any_connection()


async def test_callers_at_the_same_time_share_one_connection():
    async with Peer() as peer:
        cluster = peer.cluster()
        await cluster.refresh([])
        connections = await asyncio.gather(*(cluster.connection_to(NodeId(1)) for _ in range(20)))
        assert len(set(connections)) == 1
        assert peer.connections == 1
        cluster.close()


async def test_a_lost_connection_is_opened_again():
    answers = [HANG_UP]

    async with Peer() as peer:
        usual = peer.scripts[MetadataRequest]
        peer.scripts[MetadataRequest] = lambda request: answers.pop() if answers else usual(request)
        cluster = peer.cluster()
        with pytest.raises(KafkaError):
            await cluster.topic("t")
        assert (await cluster.topic("t")).name == "t"
        assert peer.connections == 2
        cluster.close()


async def test_a_topic_is_asked_for_once_until_it_is_forgotten():
    async with Peer() as peer:
        cluster = peer.cluster()
        for _ in range(3):
            await cluster.topic("t")
        assert len(peer.received(MetadataRequest)) == 1
        cluster.forget("t")
        await cluster.topic("t")
        assert len(peer.received(MetadataRequest)) == 2
        cluster.close()


async def test_a_topic_that_is_not_there_says_how_to_create_it():
    async with Peer() as peer:
        cluster = peer.cluster()
        with pytest.raises(KafkaError, match="tailrace topic create other") as raised:
            await cluster.topic("other")
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaError, match="has no partition 7: it has 1"):
            await cluster.leader_of(TopicPartition("t", 7))
        cluster.close()


async def test_a_partition_without_a_leader_is_asked_for_again():
    def leaderless(_request: MetadataRequest) -> MetadataResponse:
        partition = MetadataResponse.MetadataResponsePartition(
            partition_index=0, leader_id=-1, error_code=ErrorCode.LEADER_NOT_AVAILABLE
        )
        return MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name="t", partitions=[partition])])

    async with Peer({MetadataRequest: leaderless}) as peer:
        cluster = peer.cluster()
        for _ in range(2):
            with pytest.raises(KafkaError, match="no leader") as raised:
                await cluster.leader_of(TopicPartition("t", 0))
            assert raised.value.code.retriable
        assert len(peer.received(MetadataRequest)) == 2
        cluster.close()


async def test_retries_end_with_the_last_failure():
    calls = []

    async def fail() -> None:
        calls.append(1)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"attempt {len(calls)}")

    cluster = Cluster(real_ports(), [Address("127.0.0.1", 1)])
    with pytest.raises(KafkaError, match="attempt"):
        await cluster.with_retries(fail, timeout_ms=300)
    assert 2 <= len(calls) <= 6


async def test_what_does_not_pass_is_not_tried_again():
    calls = []

    async def fail() -> None:
        calls.append(1)
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)

    with pytest.raises(KafkaError):
        await Cluster(real_ports(), [Address("127.0.0.1", 1)]).with_retries(fail, timeout_ms=10_000)
    assert len(calls) == 1


def test_backoff_grows_and_stays_below_its_bound():
    cluster = Cluster(real_ports(), [Address("127.0.0.1", 1)])
    pauses = [cluster.backoff_ms(attempt) for attempt in range(100)]
    assert pauses[0] < 61
    assert 799 < pauses[20] < 1201
    assert max(pauses) < 1201
