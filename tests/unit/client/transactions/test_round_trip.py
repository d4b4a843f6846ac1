"""Transactional producer, read_committed consumer, groups and admin together, against our own broker on this loop."""

from collections.abc import AsyncIterator

import pytest

from tailrace.client.admin import Admin
from tailrace.client.consumer import EARLIEST, LATEST, Consumer, ConsumerOptions, Isolation
from tailrace.client.groups.consumer import GroupConsumer, GroupOptions
from tailrace.client.groups.membership import MemberOptions
from tailrace.client.groups.offsets import Committer, GroupMetadata
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.producer import Producer
from tailrace.client.transactions.admin import TransactionAdmin
from tailrace.client.transactions.errors import AbortableError, FencedError
from tailrace.client.transactions.producer import TransactionalProducer, TransactionOptions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.real.ports import real_ports
from tailrace.testing import Broker

PARTITIONS = [TopicPartition("t", index) for index in range(2)]


@pytest.fixture(params=[1, 2])
def options(request: pytest.FixtureRequest) -> TransactionOptions:
    """The options of a producer that knows no later version than this."""
    return TransactionOptions("id", version_max=request.param)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Broker(in_process=True) as broker:
        cluster = Cluster(real_ports(), parse_bootstrap(broker.bootstrap))
        await Admin(cluster).create_topic("t", partition_count=2)
        yield cluster
        cluster.close()


async def read(cluster: Cluster, isolation: Isolation) -> dict[int, list[bytes]]:
    consumer = Consumer(cluster, ConsumerOptions(isolation=isolation))
    ends = await consumer.offsets_at(PARTITIONS, LATEST)
    await consumer.assign(await consumer.offsets_at(PARTITIONS, EARLIEST))
    found: dict[int, list[bytes]] = {0: [], 1: []}
    while any(consumer.position(partition).offset < end for partition, end in ends.items()):
        for partition, records in (await consumer.poll(100)).items():
            found[partition.partition] += [record.value for record in records]
    await consumer.close()
    return found


async def test_readers_of_committed_records_see_whole_transactions_or_nothing(
    cluster: Cluster, options: TransactionOptions
):
    async with TransactionalProducer(cluster, options) as producer:
        for number in range(6):
            producer.begin()
            for index in (0, 1):
                await (await producer.send("t", b"%d" % number, partition=index))
            await (producer.abort if number % 3 == 0 else producer.commit)()
        producer.begin()
        await (await producer.send("t", b"open", partition=0))
        everything = [b"%d" % number for number in range(6)]
        assert await read(cluster, Isolation.READ_UNCOMMITTED) == {0: [*everything, b"open"], 1: everything}
        committed = [b"1", b"2", b"4", b"5"]
        assert await read(cluster, Isolation.READ_COMMITTED) == {0: committed, 1: committed}
        await producer.commit()
        assert await read(cluster, Isolation.READ_COMMITTED) == {0: [*committed, b"open"], 1: committed}


async def test_a_second_producer_with_the_same_id_takes_over(cluster: Cluster, options: TransactionOptions):
    first, second = (TransactionalProducer(cluster, options) for _ in range(2))
    await first.init()
    first.begin()
    await (await first.send("t", b"of the first", partition=0))
    await second.init()
    with pytest.raises(FencedError):
        await first.commit()
    second.begin()
    await second.send("t", b"of the second", partition=0)
    await second.commit()
    assert (await read(cluster, Isolation.READ_COMMITTED))[0] == [b"of the second"]
    first.close()
    second.close()


async def test_consume_transform_produce_with_an_abort_in_between(cluster: Cluster, options: TransactionOptions):
    async with Producer(cluster) as plain:
        for number in range(20):
            await plain.send("t", b"%d" % number, partition=0)
    member = GroupConsumer(
        cluster,
        GroupOptions(
            "g",
            MemberOptions(topics=("t",)),
            auto_commit_interval_ms=None,
            fetching=ConsumerOptions(isolation=Isolation.READ_COMMITTED, partition_max_bytes=100),
        ),
    )
    inputs: list[bytes] = []
    async with TransactionalProducer(cluster, options) as producer:
        is_first = True
        while len(inputs) < 20:
            records = (await member.poll(5000)).get(PARTITIONS[0], [])
            producer.begin()
            for record in records:
                await producer.send("t", record.value, partition=1)
            await producer.send_offsets({PARTITIONS[0]: member.position(PARTITIONS[0])}, member.group_metadata())
            if is_first:
                await producer.abort()
                await member.rewind()
            else:
                await producer.commit()
                inputs += [record.value for record in records]
            is_first = False
        assert await member.committed() == {PARTITIONS[0]: 20}
    expected = [b"%d" % number for number in range(20)]
    assert inputs == expected
    assert (await read(cluster, Isolation.READ_COMMITTED))[1] == expected
    await member.close()


async def test_offsets_of_a_stranger_to_the_group_fail_the_transaction(cluster: Cluster, options: TransactionOptions):
    member = GroupConsumer(cluster, GroupOptions("g", MemberOptions(topics=("t",))))
    with pytest.raises(KafkaError, match="no member of group g"):
        member.group_metadata()
    while not member.assignment:
        await member.poll(100)
    async with TransactionalProducer(cluster, options) as producer:
        producer.begin()
        with pytest.raises(AbortableError) as raised:
            await producer.send_offsets({PARTITIONS[0]: 7}, GroupMetadata("g", Committer("somebody", 1)))
        assert raised.value.cause_code is ErrorCode.UNKNOWN_MEMBER_ID
        await producer.abort()
        producer.begin()
        await producer.send_offsets({PARTITIONS[0]: 7}, member.group_metadata())
        await producer.commit()
        assert await member.committed() == {PARTITIONS[0]: 7}
    await member.close()


async def test_transactions_are_listed_and_described(cluster: Cluster, options: TransactionOptions):
    admin = TransactionAdmin(cluster)
    async with TransactionalProducer(cluster, options._replace(timeout_ms=7000)) as producer:
        producer.begin()
        await (await producer.send("t", b"x", partition=1))
        (listed,) = await admin.transactions(states=["Ongoing"], pattern="i.")
        assert listed == ("id", producer.identity.producer_id, "Ongoing", 1)
        assert await admin.transactions(states=["Empty"]) == []
        described = await admin.describe("id")
        assert (described.state, described.timeout_ms, described.partitions) == ("Ongoing", 7000, (PARTITIONS[1],))
        await producer.commit()
    with pytest.raises(KafkaError, match="does not exist") as missing:
        await admin.describe("other")
    assert missing.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    with pytest.raises(KafkaError, match="no state Happy"):
        await admin.transactions(states=["Happy"])


async def test_what_no_coordinator_has_open_hangs_and_is_aborted(
    cluster: Cluster, options: TransactionOptions, monkeypatch: pytest.MonkeyPatch
):
    admin = TransactionAdmin(cluster)
    async with TransactionalProducer(cluster, options) as producer:
        producer.begin()
        for index in (0, 1):
            await (await producer.send("t", b"x", partition=index))
        assert [each.partition for each in await admin.open_transactions(PARTITIONS)] == PARTITIONS
        assert await admin.find_hanging(PARTITIONS, max_age_ms=60_000) == []
        old = await admin.find_hanging(PARTITIONS, max_age_ms=-1)
        assert [(each.transactional_id, each.transaction.start_offset) for each in old] == [("id", 0), ("id", 0)]
        assert "gives it 60 s" in old[0].reason

        # As if a coordinator had lost it: no broker of ours lets one begin that its coordinator does not know.
        async def nobody(_found: object) -> dict[object, object]:
            return {}

        monkeypatch.setattr(admin, "coordinated", nobody)
        hanging = await admin.find_hanging(PARTITIONS, max_age_ms=60_000)
        assert [each.reason for each in hanging] == ["no coordinator has it open"] * 2
        await admin.abort(hanging[0].transaction)
        assert [each.partition for each in await admin.open_transactions(PARTITIONS)] == PARTITIONS[1:]


async def test_a_transaction_that_ends_meanwhile_does_not_hang(
    cluster: Cluster, options: TransactionOptions, monkeypatch: pytest.MonkeyPatch
):
    admin = TransactionAdmin(cluster)
    async with TransactionalProducer(cluster, options) as producer:
        producer.begin()
        await (await producer.send("t", b"x", partition=0))

        async def end_it(_found: object) -> dict[object, object]:
            await producer.commit()
            while await admin.open_transactions(PARTITIONS):
                pass
            return {}

        monkeypatch.setattr(admin, "coordinated", end_it)
        assert await admin.find_hanging(PARTITIONS, max_age_ms=60_000) == []
