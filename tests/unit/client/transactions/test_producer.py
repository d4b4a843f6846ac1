"""The transactional producer against a scripted broker: what it asks for in which version, and what refusals mean."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tailrace.client.groups.offsets import Committer, GroupMetadata
from tailrace.client.metadata import Cluster
from tailrace.client.transactions.errors import AbortableError, FencedError, OutcomeUnknownError, TransactionError
from tailrace.client.transactions.producer import TransactionalProducer
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.wire.apis.data import ProduceRequest
from tailrace.wire.apis.groups import FindCoordinatorRequest
from tailrace.wire.apis.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from tests.unit.client.peer import HANG_UP, SILENCE

from .coordinating_peer import PRODUCER_ID, CoordinatingPeer

T0 = TopicPartition("t", 0)
GROUP = GroupMetadata("g", Committer("m-1", 5, "i"))


@pytest.fixture(params=[1, 2])
async def peer(request: pytest.FixtureRequest) -> AsyncIterator[CoordinatingPeer]:
    async with CoordinatingPeer(transaction_version=request.param) as peer:
        yield peer


@pytest.fixture
async def peer_1() -> AsyncIterator[CoordinatingPeer]:
    async with CoordinatingPeer(transaction_version=1) as peer:
        yield peer


@pytest.fixture
async def peer_2() -> AsyncIterator[CoordinatingPeer]:
    async with CoordinatingPeer(transaction_version=2) as peer:
        yield peer


async def begun(peer: CoordinatingPeer, **options: int) -> tuple[Cluster, TransactionalProducer]:
    cluster = peer.cluster(request_timeout_ms=1000)
    producer = peer.producer(cluster, **options)
    await producer.init()
    producer.begin()
    return cluster, producer


def end(cluster: Cluster, producer: TransactionalProducer) -> None:
    producer.close()
    cluster.close()


async def test_version_2_adds_nothing_and_gets_its_next_epoch_with_the_end(peer_2: CoordinatingPeer):
    cluster, producer = await begun(peer_2)
    for number in range(2):
        await producer.send("t", b"x", partition=0)
        await producer.send_offsets({T0: number}, GROUP)
        await producer.commit()
        producer.begin()
    await (await producer.send("t", b"x", partition=0))
    await producer.abort()
    assert [kind for kind in peer_2.story() if kind != "produce"] == ["init", "offsets", "end", "offsets", "end", "end"]
    found = [(each.producer_id, each.producer_epoch, each.base_sequence) for each in peer_2.batches()]
    assert found == [(PRODUCER_ID, 0, 0), (PRODUCER_ID, 1, 0), (PRODUCER_ID, 2, 0)]
    assert all(each.is_transactional for each in peer_2.batches())
    assert {request.transactional_id for request in peer_2.received(ProduceRequest)} == {"id"}
    assert [request.committed for request in peer_2.received(EndTxnRequest)] == [True, True, False]
    newest = (peer_2.versions_of(ProduceRequest), peer_2.versions_of(EndTxnRequest))
    assert newest == ({12}, {5})
    assert peer_2.versions_of(TxnOffsetCommitRequest) == {5}
    end(cluster, producer)


async def test_the_older_protocol_adds_partitions_and_groups_once_in_each_transaction(peer_1: CoordinatingPeer):
    cluster, producer = await begun(peer_1)
    for _ in range(2):
        await (await producer.send("t", b"x", partition=0))
        await (await producer.send("t", b"y", partition=0))
        await producer.send_offsets({T0: 7}, GROUP)
        await producer.send_offsets({T0: 8}, GROUP)
        await producer.commit()
        producer.begin()
    once = ["add partitions", "produce", "produce", "add offsets", "offsets", "offsets", "end"]
    assert peer_1.story() == ["init", *once, *once]
    # Under the same epoch the sequence goes on.
    assert [(each.producer_epoch, each.base_sequence) for each in peer_1.batches()] == [(0, n) for n in range(4)]
    assert (peer_1.versions_of(ProduceRequest), peer_1.versions_of(EndTxnRequest)) == ({11}, {4})
    assert peer_1.versions_of(AddPartitionsToTxnRequest) == {3}
    assert peer_1.versions_of(TxnOffsetCommitRequest) == {4}
    (added, _) = peer_1.received(AddOffsetsToTxnRequest)
    assert (added.transactional_id, added.producer_id, added.group_id) == ("id", PRODUCER_ID, "g")
    end(cluster, producer)


async def test_offsets_name_the_member(peer: CoordinatingPeer):
    cluster, producer = await begun(peer)
    await producer.send_offsets({T0: 7}, GROUP)
    (request,) = peer.received(TxnOffsetCommitRequest)
    assert (request.group_id, request.member_id, request.generation_id, request.group_instance_id) == (
        "g",
        "m-1",
        5,
        "i",
    )
    assert request.topics[0].partitions[0].committed_offset == 7
    end(cluster, producer)


async def test_partitions_that_are_first_written_together_are_added_together(peer_1: CoordinatingPeer):
    cluster, producer = await begun(peer_1)
    for index in (1, 0):
        await producer.send("t", b"x", partition=index)
    await producer.commit()
    added = [
        topic.partitions
        for request in peer_1.received(AddPartitionsToTxnRequest)
        for topic in request.v3_and_below_topics
    ]
    assert added == [[0, 1]]
    end(cluster, producer)


async def test_a_transaction_without_anything_in_it_asks_nobody(peer: CoordinatingPeer):
    cluster, producer = await begun(peer)
    await producer.commit()
    producer.begin()
    await producer.send_offsets({}, GROUP)
    await producer.abort()
    assert peer.story() == ["init"]
    end(cluster, producer)


async def test_a_record_that_fails_fails_the_transaction_and_the_next_one_has_a_new_epoch(peer: CoordinatingPeer):
    peer.plan[ProduceRequest] = [ErrorCode.MESSAGE_TOO_LARGE]
    cluster, producer = await begun(peer)
    refused = await producer.send("t", b"x", partition=0)
    with pytest.raises(AbortableError, match="MESSAGE_TOO_LARGE") as raised:
        await producer.commit()
    assert (raised.value.cause_code, raised.value.is_undecided) == (ErrorCode.MESSAGE_TOO_LARGE, False)
    assert isinstance(refused.exception(), KafkaError)
    with pytest.raises(AbortableError):
        await producer.send("t", b"y", partition=0)
    with pytest.raises(AbortableError):
        producer.begin()
    await producer.abort()
    producer.begin()
    await producer.send("t", b"z", partition=0)
    await producer.commit()
    assert [request.committed for request in peer.received(EndTxnRequest)] == [False, True]
    assert [(each.producer_epoch, each.base_sequence) for each in peer.batches()] == [(0, 0), (1, 0)]
    end(cluster, producer)


async def test_the_older_protocol_asks_for_the_new_epoch_with_the_one_it_has(peer_1: CoordinatingPeer):
    peer_1.plan[ProduceRequest] = [ErrorCode.MESSAGE_TOO_LARGE]
    cluster, producer = await begun(peer_1)
    await producer.send("t", b"x", partition=0)
    with pytest.raises(AbortableError):
        await producer.commit()
    await producer.abort()
    assert peer_1.story() == ["init", "add partitions", "produce", "end", "init"]
    asked = [(request.producer_id, request.producer_epoch) for request in peer_1.received(InitProducerIdRequest)]
    assert asked == [(-1, -1), (PRODUCER_ID, 0)]
    end(cluster, producer)


async def test_an_abort_does_not_send_what_waits(peer: CoordinatingPeer):
    cluster, producer = await begun(peer)
    await (await producer.send("t", b"sent", partition=0))
    waiting = await producer.send("t", b"waits", partition=0)
    await producer.abort()
    assert "was aborted" in str(waiting.exception())
    assert len(peer.batches()) == 1
    end(cluster, producer)


async def test_an_abort_does_not_wait_for_a_batch_under_way_nor_use_its_epoch_again(peer: CoordinatingPeer):
    peer.plan[ProduceRequest] = [SILENCE]
    cluster, producer = await begun(peer)
    lost = await producer.send("t", b"x", partition=0)
    while not peer.batches():
        await asyncio.sleep(0.01)
    async with asyncio.timeout(0.5):
        await producer.abort()
    assert lost.exception() is not None
    assert producer.identity == (PRODUCER_ID, 1)
    end(cluster, producer)


async def test_what_was_lost_is_sent_again_the_same(peer: CoordinatingPeer):
    peer.plan = {ProduceRequest: [HANG_UP, ErrorCode.NOT_LEADER_OR_FOLLOWER], EndTxnRequest: [HANG_UP]}
    cluster, producer = await begun(peer)
    await producer.send("t", b"x", partition=0)
    await producer.commit()
    assert len(set(peer.batches())) == 1
    assert len(peer.batches()) == 3
    epochs = [request.producer_epoch for request in peer.received(EndTxnRequest)]
    assert epochs == [0, 0]
    end(cluster, producer)


async def test_a_coordinator_that_moved_is_looked_for_anew(peer: CoordinatingPeer):
    peer.plan = {InitProducerIdRequest: [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR]}
    cluster, producer = await begun(peer)
    assert len(peer.received(FindCoordinatorRequest)) == 2
    assert {request.key_type for request in peer.received(FindCoordinatorRequest)} == {1}
    end(cluster, producer)


async def test_a_fenced_producer_is_done(peer: CoordinatingPeer):
    peer.plan = {EndTxnRequest: [ErrorCode.PRODUCER_FENCED]}
    cluster, producer = await begun(peer)
    await producer.send("t", b"x", partition=0)
    with pytest.raises(FencedError, match="another producer has taken over") as raised:
        await producer.commit()
    assert not raised.value.is_undecided
    for step in (producer.commit, producer.abort, producer.init):
        with pytest.raises(FencedError):
            await step()
    end(cluster, producer)


async def test_whether_a_fenced_producer_had_committed_is_not_known_if_an_answer_was_lost(peer: CoordinatingPeer):
    peer.plan = {EndTxnRequest: [HANG_UP, ErrorCode.PRODUCER_FENCED]}
    cluster, producer = await begun(peer)
    await producer.send("t", b"x", partition=0)
    with pytest.raises(FencedError) as raised:
        await producer.commit()
    assert raised.value.is_undecided
    end(cluster, producer)


async def test_a_commit_without_an_answer_may_be_repeated_and_nothing_else_be_done(peer: CoordinatingPeer):
    peer.plan = {EndTxnRequest: [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 100}
    cluster, producer = await begun(peer, retry_timeout_ms=200)
    await producer.send("t", b"x", partition=0)
    with pytest.raises(OutcomeUnknownError) as raised:
        await producer.commit()
    assert raised.value.is_undecided
    for step in (producer.begin, producer.abort()):
        with pytest.raises(KafkaError, match="not the time"):
            await step if asyncio.iscoroutine(step) else step()
    peer.plan.clear()
    await producer.commit()
    producer.begin()
    end(cluster, producer)


async def test_an_abort_without_an_answer_has_committed_nothing(peer: CoordinatingPeer):
    peer.plan = {EndTxnRequest: [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 100}
    cluster, producer = await begun(peer, retry_timeout_ms=200)
    await (await producer.send("t", b"x", partition=0))
    with pytest.raises(OutcomeUnknownError) as raised:
        await producer.abort()
    assert not raised.value.is_undecided
    peer.plan.clear()
    await producer.abort()
    end(cluster, producer)


async def test_a_commit_that_the_coordinator_refuses_can_be_aborted(peer: CoordinatingPeer):
    peer.plan = {EndTxnRequest: [ErrorCode.TRANSACTION_ABORTABLE]}
    cluster, producer = await begun(peer)
    await producer.send("t", b"x", partition=0)
    with pytest.raises(AbortableError):
        await producer.commit()
    await producer.abort()
    producer.begin()
    end(cluster, producer)


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
async def test_offsets_of_a_member_that_was_put_out_fail_the_transaction(peer: CoordinatingPeer, code: ErrorCode):
    peer.plan = {TxnOffsetCommitRequest: [code]}
    cluster, producer = await begun(peer)
    with pytest.raises(AbortableError) as raised:
        await producer.send_offsets({T0: 7}, GROUP)
    assert raised.value.cause_code is code
    with pytest.raises(AbortableError):
        await producer.commit()
    await producer.abort()
    end(cluster, producer)


async def test_an_id_that_has_expired_is_initialized_anew_with_nothing_to_end(peer: CoordinatingPeer):
    peer.plan = {ProduceRequest: [ErrorCode.INVALID_PRODUCER_ID_MAPPING]}
    cluster, producer = await begun(peer)
    await producer.send("t", b"x", partition=0)
    with pytest.raises(AbortableError):
        await producer.commit()
    await producer.abort()
    assert "end" not in peer.story()
    assert peer.story()[-1] == "init"
    end(cluster, producer)


async def test_an_abort_that_finds_another_id_asks_for_the_next_one(peer: CoordinatingPeer):
    peer.plan = {EndTxnRequest: [ErrorCode.INVALID_PRODUCER_ID_MAPPING]}
    cluster, producer = await begun(peer)
    await producer.send("t", b"x", partition=0)
    await asyncio.sleep(0.05)
    await producer.abort()
    assert peer.story()[-2:] == ["end", "init"]
    producer.begin()
    end(cluster, producer)


async def test_an_abort_before_the_first_partition_was_added_has_nothing_to_end(peer_1: CoordinatingPeer):
    """The markers of the transaction before are being written. What is added must not begin anything afterwards."""
    peer_1.plan = {
        AddPartitionsToTxnRequest: [ErrorCode.CONCURRENT_TRANSACTIONS] * 100,
        EndTxnRequest: [ErrorCode.INVALID_TXN_STATE],
    }
    cluster, producer = await begun(peer_1)
    await producer.send("t", b"x", partition=0)
    await asyncio.sleep(0.05)
    await producer.abort()
    assert peer_1.story()[-2:] == ["end", "init"]
    producer.begin()
    end(cluster, producer)


async def test_a_commit_that_finds_another_id_after_a_lost_answer_is_undecided(peer: CoordinatingPeer):
    """The first one may have been carried out, and its producer given a new id, which was fenced since."""
    peer.plan = {EndTxnRequest: [HANG_UP, ErrorCode.INVALID_PRODUCER_ID_MAPPING]}
    cluster, producer = await begun(peer)
    await producer.send("t", b"x", partition=0)
    with pytest.raises(TransactionError) as raised:
        await producer.commit()
    assert raised.value.is_undecided
    end(cluster, producer)


async def test_a_partition_that_cannot_be_added_fails_the_transaction(peer_1: CoordinatingPeer):
    peer_1.plan = {AddPartitionsToTxnRequest: [ErrorCode.TOPIC_AUTHORIZATION_FAILED]}
    cluster, producer = await begun(peer_1)
    refused = await producer.send("t", b"x", partition=0)
    with pytest.raises(AbortableError, match="TOPIC_AUTHORIZATION_FAILED"):
        await producer.commit()
    assert refused.exception() is not None
    assert peer_1.batches() == []
    end(cluster, producer)


async def test_a_partition_that_the_coordinator_does_not_know_yet_is_added_again(peer_1: CoordinatingPeer):
    unknown = [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    peer_1.plan = {AddPartitionsToTxnRequest: list(unknown)}
    cluster, producer = await begun(peer_1)
    for index in range(2):
        await producer.send("t", b"x", partition=index)
    await producer.commit()
    added = peer_1.received(AddPartitionsToTxnRequest)
    assert [request.v3_and_below_topics[0].partitions for request in added] == [[0, 1], [0, 1]]
    end(cluster, producer)


async def test_an_answer_that_makes_no_sense_ends_the_producer(peer: CoordinatingPeer):
    peer.plan = {EndTxnRequest: [ErrorCode.INVALID_TXN_STATE]}
    cluster, producer = await begun(peer)
    await producer.send("t", b"x", partition=0)
    with pytest.raises(TransactionError, match="cannot go on") as raised:
        await producer.commit()
    assert raised.value.code is ErrorCode.INVALID_TXN_STATE
    with pytest.raises(TransactionError):
        await producer.abort()
    end(cluster, producer)


async def test_steps_out_of_order_are_refused(peer: CoordinatingPeer):
    cluster = peer.cluster()
    producer = peer.producer(cluster)
    with pytest.raises(KafkaError, match="is new"):
        producer.begin()
    await producer.init()
    for step in (producer.commit(), producer.abort(), producer.send("t", b"x"), producer.init()):
        with pytest.raises(KafkaError, match="is ready") as raised:
            await step
        assert raised.value.code is ErrorCode.INVALID_TXN_STATE
    end(cluster, producer)


async def test_leaving_the_context_aborts(peer: CoordinatingPeer):
    cluster = peer.cluster()
    async with peer.producer(cluster) as producer:
        producer.begin()
        await (await producer.send("t", b"x", partition=0))
    assert [request.committed for request in peer.received(EndTxnRequest)] == [False]
    cluster.close()
