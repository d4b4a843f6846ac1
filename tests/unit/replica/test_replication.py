"""Leaders and followers: what is replicated, confirmed, cut off and taken up again."""

import asyncio

import pytest

from tailrace.broker.handlers.leader_hints import decide_read_replica
from tailrace.broker.handlers.offsets import handle_delete_records
from tailrace.broker.handlers.produce import PartitionAnswer, PendingProduce, Wait
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, Uuid
from tailrace.replica.leading import deletion
from tailrace.sim.background import HeldBackground
from tailrace.wire.apis.data import DeleteRecordsRequest, ProduceResponse
from tests.unit.replica.cluster import Cluster, simulate
from tests.unit.replica.replicas import batch, release


def test_followers_copy_the_log_and_confirm_it():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        await cluster[1].append(b"a", b"b")
        await cluster[1].append(b"c")
        for node in cluster.nodes.values():
            assert node.values() == [b"a", b"b", b"c"]
        await cluster.settle()
        assert [node.partition().high_watermark for node in cluster.nodes.values()] == [3, 3, 3]

    simulate(run)


def test_what_the_new_leader_does_not_have_is_cut_off():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        await cluster[1].append(b"a")
        cluster.isolate(1)
        cluster.deaf.add(1)
        lost = cluster[1].append(b"lost")
        await cluster.settle(0.2)
        cluster.set(leader=2, isr=(2, 3))
        await cluster[2].append(b"b")
        cluster.deaf.clear()
        cluster.heal()
        cluster.publish()
        await cluster[2].append(b"c")
        await cluster.settle()
        for node in cluster.nodes.values():
            assert node.values() == [b"a", b"b", b"c"]
        assert cluster.partitions[0].isr == (1, 2, 3)
        with pytest.raises(KafkaError) as raised:
            await lost
        assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert cluster[1].partition().log.epochs.entries == cluster[2].partition().log.epochs.entries

    simulate(run)


def test_logs_that_parted_more_than_once_find_their_common_prefix():
    """KIP-279: 1 and 2 lead in turn, each alone and without the other's records."""

    async def run(cluster: Cluster):
        cluster.start(min_insync_replicas="1")
        cluster.set(leader=1)
        await cluster[1].append(b"a")
        for leader, other in ((1, 2), (2, 1), (1, 2), (2, 1)):
            cluster.isolate(other)
            cluster.set(leader=leader, isr=(leader,), replicas=(1, 2))
            for number in range(leader + 1):
                cluster[leader].append(b"%d-%d" % (leader, number), acks=1)
            cluster.heal()
            cluster.cut = {(1, 2), (2, 1)}
            await cluster.settle(0.2)
        cluster.heal()
        await cluster.settle()
        assert cluster[1].values() == cluster[2].values()
        assert cluster[1].partition().log.epochs.entries == cluster[2].partition().log.epochs.entries

    simulate(run)


def test_an_epoch_that_was_led_without_a_record_is_forgotten():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        await cluster[1].append(b"a")
        cluster.set(leader=2)
        cluster.deaf.add(2)
        cluster.set(leader=3)
        cluster.deaf.clear()
        cluster.publish()
        await cluster[3].append(b"b")
        assert [node.values() for node in cluster.nodes.values()] == [[b"a", b"b"]] * 3

    simulate(run)


def test_one_that_was_away_for_longer_than_records_are_kept_begins_anew():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1, isr=(1, 2))
        cluster.isolate(3)
        await cluster[1].append(b"a", b"b")
        await cluster[1].append(b"c")
        deletion.delete_records(cluster[1].partition(), 3)
        await cluster[1].append(b"d")
        cluster.heal()
        await cluster.settle()
        assert cluster[3].partition().log.log_start_offset == 3
        assert cluster[3].values() == [b"d"]
        assert cluster[2].partition().log.log_start_offset == 3
        assert cluster.partitions[0].isr == (1, 2, 3)

    simulate(run)


def test_an_emptied_disk_is_filled_again():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        for number in range(20):
            await cluster[1].append(b"%d" % number)
        cluster[3].crash()
        cluster.set(isr=(1, 2))
        cluster[3].disk.remove_folder("data")
        cluster[3].start()
        cluster.publish()
        await cluster.settle()
        assert cluster[3].values() == cluster[1].values()
        assert cluster.partitions[0].isr == (1, 2, 3)

    simulate(run)


def test_a_follower_that_must_sync_counts_only_for_what_it_has_synced():
    async def run(cluster: Cluster):
        held = HeldBackground()
        cluster[2].background = held
        cluster.start(flush_messages="1")
        cluster.set(leader=1, isr=(1, 2), replicas=(1, 2))
        waiting = cluster[1].append(b"a")
        await cluster.settle()
        assert cluster[2].values() == [b"a"]
        assert not waiting.done()
        assert cluster[1].partition().followers[2].log_end_offset == 0
        while held.held:
            await release(held)
        await waiting

    simulate(run)


def test_replicas_come_and_go_with_the_metadata():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1, isr=(1, 2), replicas=(1, 2))
        await cluster[1].append(b"a")
        assert not cluster[3].replicas.partitions
        cluster.set(replicas=(1, 2, 3))
        await cluster.settle()
        assert cluster.partitions[0].isr == (1, 2, 3)
        cluster.set(leader=3, replicas=(1, 3), isr=(1, 3))
        await cluster[3].append(b"b")
        assert not cluster[2].replicas.partitions
        assert not [name for name in cluster[2].disk.list("data") if name == "t-0"]
        assert cluster[1].values() == [b"a", b"b"]

    simulate(run)


def test_a_replica_that_was_moved_while_its_broker_was_away_is_deleted_at_its_start():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        await cluster[1].append(b"a")
        cluster[3].crash()
        cluster.set(replicas=(1, 2), isr=(1, 2))
        cluster[3].start()
        cluster.publish()
        assert not cluster[3].replicas.partitions
        assert "t-0" not in cluster[3].disk.list("data")

    simulate(run)


def test_the_high_watermark_is_found_again_and_not_by_another_topic_of_its_name():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        await cluster[1].append(b"a")
        await cluster[1].append(b"b")
        await cluster.settle()
        node = cluster[2]
        node.replicas.begin_high_watermark_checkpoint(node.directory)()
        node.crash()
        node.start()
        node.follow(cluster.image())
        assert node.partition().high_watermark == 2
        # The topic is deleted and made anew, and the broker dies before the next checkpoint.
        cluster.topic_id = Uuid(b"u" * 16)
        cluster.partitions.clear()
        cluster.set(leader=1)
        cluster[3].crash()  # So that nothing is confirmed.
        cluster[1].append(b"x", b"y")
        await cluster.settle()
        assert node.values() == [b"x", b"y"]
        node.crash()
        cluster[1].crash()
        node.start()
        node.follow(cluster.image())
        assert node.partition().log.log_end_offset == 2
        assert node.partition().high_watermark == 0

    simulate(run)


def test_a_consumer_is_sent_to_the_in_sync_replica_in_its_rack():
    async def run(cluster: Cluster):
        cluster.racks = {1: "a", 2: "b", 3: "b"}
        cluster.start()
        cluster.set(leader=1, isr=(1, 2))
        cluster.isolate(3)
        await cluster[1].append(b"a", b"b")
        partition = cluster[1].partition()
        brokers = cluster.image().brokers

        def choose(rack: str, offset: int) -> int:
            return decide_read_replica(brokers, partition, rack, offset)

        assert choose("b", 0) == 2
        assert choose("b", 2) == 2
        assert choose("b", 3) == -1  # It is not known to have come so far.
        assert choose("a", 0) == -1
        assert choose("c", 0) == -1
        cluster.set(isr=(1,))
        assert choose("b", 0) == -1

    simulate(run)


def test_a_throttled_replica_catches_up_at_its_rate_and_in_sync_ones_are_not_held_back():
    async def run(cluster: Cluster):
        cluster.start(follower_replication_throttled_replicas="*", leader_replication_throttled_replicas="*")
        cluster.set(leader=1, isr=(1, 2))
        cluster.isolate(3)
        for number in range(10):
            await cluster[1].append(b"%d" % number * 1000)
        cluster.heal()
        await cluster.settle(3)
        assert 0 < cluster[3].partition().log.log_end_offset < 10
        await cluster.settle(60)
        assert cluster[3].values() == cluster[1].values()
        assert cluster.partitions[0].isr == (1, 2, 3)

    simulate(
        run,
        replica_fetch_max_bytes=1000,
        follower_replication_throttled_rate=1000,
        leader_replication_throttled_rate=1000,
    )


@pytest.mark.parametrize(("named", "is_held_back"), [(1, True), (3, False)])
def test_the_list_of_leaders_names_leaders(named: int, is_held_back: bool):
    async def run(cluster: Cluster):
        cluster.start(leader_replication_throttled_replicas=f"0:{named}")
        cluster.set(leader=1, isr=(1, 2))
        cluster.isolate(3)
        for number in range(10):
            await cluster[1].append(b"%d" % number * 1000)
        cluster.heal()
        await cluster.settle(3)
        assert (cluster[3].partition().log.log_end_offset < 10) is is_held_back

    simulate(run, replica_fetch_max_bytes=1000, leader_replication_throttled_rate=1000)


def test_what_a_restart_finds_unsynced_is_synced_before_it_counts():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        await cluster[1].append(b"a")
        for node in cluster.nodes.values():
            node.crash()
        cluster.configs = {"flush.messages": "1"}
        held = {node.id: HeldBackground() for node in cluster.nodes.values()}
        for node in cluster.nodes.values():
            node.background = held[node.id]
            node.start()
        cluster.set(leader=1)
        await cluster.settle()
        assert [node.partition().high_watermark for node in cluster.nodes.values()] == [0, 0, 0]
        for each in held.values():
            assert each.held
            await release(each)
        await cluster.settle()
        assert cluster[1].partition().high_watermark == 1

    simulate(run)


def test_nothing_is_fetched_into_the_logs_of_a_broker_that_stops():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        await cluster[1].append(b"a")
        await cluster.settle()
        cluster[3].replicas.close()
        cluster.set(leader=2, isr=(1, 2))  # The metadata is followed until the quorum is left.
        await cluster[2].append(b"b")
        await cluster.settle()
        assert cluster[3].values() == [b"a"]

    simulate(run)


def test_a_wait_that_begins_under_another_leader_is_not_confirmed_by_its_records():
    """A request with a batch that is checked in slices waits for its other partitions only afterwards."""

    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        cluster.isolate(1)
        old = cluster[1].partition()
        result = old.append(batch(b"lost"), required_acks=-1)
        wait = Wait(old, result.next_offset, PartitionAnswer(), old.leader_epoch)
        cluster.set(leader=2, isr=(2, 3))
        cluster.heal()
        await cluster[2].append(b"other")
        await cluster.settle()
        assert cluster[1].values() == [b"other"]
        assert old.high_watermark >= result.next_offset
        PendingProduce(ProduceResponse(), [wait], timeout_ms=1000)
        assert wait.answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    simulate(run)


def test_a_topic_that_is_to_be_synced_from_now_on_is_fetched_on():
    """What followers have unsynced keeps them from fetching until it is synced, and nobody appends meanwhile."""

    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        await cluster[1].append(b"a")
        await cluster.settle()
        assert cluster[2].partition().log.unflushed_messages == 1
        cluster.configs = {"flush.messages": "1"}
        cluster.publish()
        await cluster.settle()
        assert [node.partition().log.unflushed_messages for node in cluster.nodes.values()] == [0, 0, 0]

    simulate(run)


async def delete_records(cluster: Cluster, offset: int, *, timeout_ms: int = 5000):
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
    response = await handle_delete_records(cluster[1].broker, None, request)  # type: ignore[arg-type]
    return response.topics[0].partitions[0]


def test_deleted_records_are_deleted_on_all_that_may_lead_next():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        for value in (b"a", b"b", b"c"):
            await cluster[1].append(value)
        answer = await delete_records(cluster, 2)
        assert (answer.error_code, answer.low_watermark) == (0, 2)
        assert [node.partition().log.log_start_offset for node in cluster.nodes.values()] == [2, 2, 2]
        cluster.isolate(3)
        answer = await delete_records(cluster, 3)
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 2)
        cluster.set(isr=(1, 2))
        answer = await delete_records(cluster, 3)
        assert (answer.error_code, answer.low_watermark) == (0, 3)

    simulate(run)


def test_a_request_that_comes_late_and_tells_less_is_set_right():
    """After an interruption another connection is used, so that the request before may arrive behind its successor."""

    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        await cluster[1].append(b"a")
        await cluster.settle()
        cluster.isolate(2)
        waiting = cluster[1].append(b"b")
        await cluster.settle()
        assert cluster[3].values() == [b"a", b"b"]
        cluster[1].partition().note_fetch(NodeId(3), cluster.brokers[NodeId(3)].epoch, offset=1, log_start_offset=0)
        cluster.heal()
        await cluster.settle(2.0)
        assert waiting.done()

    simulate(run)


def test_a_leader_that_hears_of_a_topic_last_is_asked_again_soon():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1, index=0)
        await cluster.settle()
        cluster.deaf.add(1)
        cluster.set(leader=1, index=1)
        await cluster.settle(0.01)
        cluster.deaf.clear()
        cluster.publish()
        async with asyncio.timeout(0.1):
            await cluster[1].append(b"a", index=1)

    simulate(run)
