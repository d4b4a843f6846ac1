"""Heartbeats and the end of sessions: fencing, controlled shutdown, a controller that was away."""

import pytest

from tailrace.controller.image import NO_LEADER
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId
from tailrace.wire.apis.own import ReportDeathRequest, ReportDeathResponse
from tailrace.wire.apis.quorum import BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationResponse
from tailrace.wire.apis.stored_records import PartitionChangeRecord
from tests.unit.controller.cluster import Cluster, assigned, directory_id

SESSION_MS = 2500


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(brokers=3, features=True, broker_session_timeout_ms=SESSION_MS)
    cluster.create(assigned("orders", [1, 2, 3]), assigned("followed", [2, 1]))
    return cluster


def fenced(cluster: Cluster) -> list[int]:
    return [node_id for node_id, broker in sorted(cluster.image.brokers.items()) if broker.fenced]


def deaths(*epochs: tuple[int, int]) -> ReportDeathRequest:
    brokers = [ReportDeathRequest.Broker(broker_id=node, broker_epoch=epoch) for node, epoch in epochs]
    return ReportDeathRequest(brokers=brokers)


def keep_alive(cluster: Cluster, *nodes: int, milliseconds: float) -> None:
    for _ in range(int(milliseconds / 100)):
        for node in nodes:
            cluster.heartbeat(node)
        cluster.pass_time(100)


def test_a_broker_that_is_not_heard_is_fenced(cluster: Cluster) -> None:
    keep_alive(cluster, 2, 3, milliseconds=2400)
    assert fenced(cluster) == []
    keep_alive(cluster, 2, 3, milliseconds=200)
    assert fenced(cluster) == [1]
    assert (cluster.partition("orders").leader, cluster.partition("orders").isr) == (2, (2, 3))
    cluster.heartbeat(1)
    assert fenced(cluster) == [], "it lives, and may come back"


def test_a_heartbeat_that_cannot_be_answered_shows_that_its_broker_lives(cluster: Cluster) -> None:
    """Of this incarnation: an earlier one is dead."""
    epochs = {node_id: broker.epoch for node_id, broker in cluster.image.brokers.items()} | {2: 1}
    for _ in range(SESSION_MS // 100 + 2):
        for node_id in (1, 2):
            cluster.controller.note_life(BrokerHeartbeatRequest(broker_id=node_id, broker_epoch=epochs[node_id]))
        cluster.heartbeat(3)
        cluster.pass_time(100)
    assert fenced(cluster) == [2]


@pytest.mark.parametrize("is_new_controller", [False, True])
def test_a_broker_comes_back_once_it_knows_who_leads_now(cluster: Cluster, *, is_new_controller: bool) -> None:
    known = cluster.image.next_offset - 1
    keep_alive(cluster, 2, 3, milliseconds=SESSION_MS + 200)
    if is_new_controller:
        cluster.controller.deactivate()
        cluster.controller.activate(cluster.monotonic_ms)
    epoch = cluster.image.brokers[1].epoch
    stopped = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=known)
    assert cluster.do(stopped, BrokerHeartbeatResponse).is_fenced, "it still takes itself for the leader"
    stopped.current_metadata_offset = cluster.image.next_offset - 1
    assert not cluster.do(stopped, BrokerHeartbeatResponse).is_fenced


def test_a_broker_whose_port_refuses_is_fenced_when_its_lease_is_over() -> None:
    cluster = Cluster(brokers=3, features=True, broker_session_timeout_ms=9000, broker_lease_ms=2000)
    keep_alive(cluster, 1, 2, 3, milliseconds=1000)
    heard_ms = cluster.monotonic_ms - 100
    keep_alive(cluster, 2, 3, milliseconds=800)
    assert cluster.silent() == []
    keep_alive(cluster, 2, 3, milliseconds=300)
    assert cluster.silent() == [1]
    cluster.controller.note_refused(NodeId(1), cluster.monotonic_ms)
    cluster.pass_time(heard_ms + 1999 - cluster.monotonic_ms)
    assert fenced(cluster) == [], "no hint is a proof: it may lead that long"
    cluster.pass_time(2)
    assert fenced(cluster) == [1]


def test_a_refusal_is_forgotten_when_its_broker_is_heard() -> None:
    cluster = Cluster(brokers=3, features=True, broker_session_timeout_ms=9000, broker_lease_ms=2000)
    keep_alive(cluster, 2, 3, milliseconds=1500)
    tried_ms = cluster.monotonic_ms
    cluster.controller.note_refused(NodeId(1), tried_ms)
    keep_alive(cluster, 1, 2, 3, milliseconds=100)
    cluster.controller.note_refused(NodeId(1), tried_ms)  # An answer that comes late.
    keep_alive(cluster, 2, 3, milliseconds=8000)
    assert fenced(cluster) == []
    keep_alive(cluster, 2, 3, milliseconds=1200)
    assert fenced(cluster) == [1]


def test_a_new_controller_counts_the_lease_from_what_its_predecessor_may_have_granted() -> None:
    cluster = Cluster(brokers=3, features=True, broker_session_timeout_ms=9000, broker_lease_ms=2000)
    cluster.controller.deactivate()
    cluster.controller.activate(cluster.monotonic_ms)
    keep_alive(cluster, 2, 3, milliseconds=2800)
    cluster.controller.note_refused(NodeId(1), cluster.monotonic_ms)
    keep_alive(cluster, 2, 3, milliseconds=600)
    assert fenced(cluster) == []
    keep_alive(cluster, 2, 3, milliseconds=300)
    assert fenced(cluster) == [1]


def test_a_death_that_is_reported_fences_at_once(cluster: Cluster) -> None:
    epoch = cluster.image.brokers[1].epoch
    report = deaths((1, epoch))
    assert cluster.do(report, ReportDeathResponse).error_code == ErrorCode.NONE
    assert fenced(cluster) == [1]
    assert (cluster.partition("orders").leader, cluster.partition("orders").isr) == (2, (2, 3))
    # Its last heartbeat comes after the word of its death.
    late = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=epoch, current_metadata_offset=cluster.image.next_offset - 4
    )
    assert cluster.do(late, BrokerHeartbeatResponse).is_fenced
    offset = cluster.image.next_offset
    assert cluster.do(report, ReportDeathResponse).error_code == ErrorCode.NONE
    assert cluster.image.next_offset == offset, "twice is once"


def test_the_death_of_an_earlier_incarnation_is_no_news(cluster: Cluster) -> None:
    first = cluster.image.brokers[1].epoch
    cluster.register(1, previous_broker_epoch=first)
    report = deaths((1, first))
    assert cluster.do(report, ReportDeathResponse).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.do(deaths((9, 0)), ReportDeathResponse).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert fenced(cluster) == []


def test_those_who_died_together_are_all_candidates(cluster: Cluster) -> None:
    """Had the last of them been fenced after the others, it would have been the only one: whatever is left of its log
    would be taken for all there was."""
    epochs = [(node, cluster.image.brokers[node].epoch) for node in (2, 3, 1)]
    assert cluster.do(deaths(*epochs), ReportDeathResponse).error_code == ErrorCode.NONE
    assert fenced(cluster) == [1, 2, 3]
    orders = cluster.partition("orders")
    assert orders.leader == NO_LEADER
    assert {*orders.isr, *orders.eligible_leader_replicas} == {1, 2, 3}


def test_of_the_dead_those_without_a_successor_are_fenced(cluster: Cluster) -> None:
    first = cluster.image.brokers[2].epoch
    cluster.register(2, previous_broker_epoch=first)
    report = deaths((2, first), (3, cluster.image.brokers[3].epoch))
    assert cluster.do(report, ReportDeathResponse).error_code == ErrorCode.NONE
    assert fenced(cluster) == [3]


def test_nobody_takes_over_from_a_lone_broker_that_has_died() -> None:
    cluster = Cluster(brokers=1, features=True)
    report = deaths((1, cluster.image.brokers[1].epoch))
    assert cluster.do(report, ReportDeathResponse).error_code == ErrorCode.NONE
    assert fenced(cluster) == []


def test_brokers_that_go_together_are_fenced_together(cluster: Cluster) -> None:
    keep_alive(cluster, 3, milliseconds=3000)
    assert fenced(cluster) == [1, 2]
    assert (cluster.partition("orders").leader, cluster.partition("orders").leader_epoch) == (3, 1)
    assert cluster.partition("followed").leader == NO_LEADER


def test_a_lone_broker_is_never_fenced() -> None:
    cluster = Cluster(brokers=1, features=True)
    cluster.pass_time(60_000)
    assert fenced(cluster) == []


def test_a_new_controller_gives_everybody_a_session(cluster: Cluster) -> None:
    cluster.pass_time(2000)
    cluster.controller.deactivate()
    assert cluster.controller.next_deadline_ms() is None
    cluster.pass_time(60_000)
    cluster.controller.activate(cluster.monotonic_ms)
    # And as much more as its predecessor may have granted leases for.
    keep_alive(cluster, 2, 3, milliseconds=SESSION_MS + 1500)
    assert fenced(cluster) == []
    keep_alive(cluster, 2, 3, milliseconds=200)
    assert fenced(cluster) == [1]


def test_a_controller_that_was_stopped_has_heard_nobody(cluster: Cluster) -> None:
    keep_alive(cluster, 1, 2, 3, milliseconds=1000)
    cluster.monotonic_ms += 60_000
    assert cluster.controller.on_deadline(cluster.monotonic_ms) is None
    assert fenced(cluster) == []
    keep_alive(cluster, 2, 3, milliseconds=SESSION_MS + 200)
    assert fenced(cluster) == [1]


def test_an_absence_is_noticed_by_a_request_too(cluster: Cluster) -> None:
    cluster.monotonic_ms += 60_000
    cluster.heartbeat(1)
    cluster.pass_time(2000)
    assert fenced(cluster) == []


def test_deadlines_come_in_ticks(cluster: Cluster) -> None:
    deadline_ms = cluster.controller.next_deadline_ms()
    assert deadline_ms is not None
    assert 0 < deadline_ms - cluster.monotonic_ms <= SESSION_MS / 5


def test_a_broker_that_restarts_need_not_wait(cluster: Cluster) -> None:
    old = cluster.image.brokers[1].epoch
    assert cluster.register(1, previous_broker_epoch=old) > old
    assert (cluster.partition("orders").leader, cluster.partition("orders").isr) == (2, (2, 3))
    stale = BrokerHeartbeatRequest(broker_id=1, broker_epoch=old)
    assert cluster.ask(stale, BrokerHeartbeatResponse).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_request_of_an_earlier_start_that_comes_late_puts_nobody_out(cluster: Cluster) -> None:
    first = cluster.image.brokers[1].epoch
    late = cluster.registration(1, previous_broker_epoch=first)
    live = cluster.register(1, previous_broker_epoch=first)
    before = cluster.image
    refused = cluster.do(late, BrokerRegistrationResponse)
    assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.image.brokers == before.brokers
    assert cluster.image.brokers[1].epoch == live
    # Once nobody was heard for a session's time, it is as good as any other.
    keep_alive(cluster, 2, 3, milliseconds=SESSION_MS + 200)
    assert cluster.do(late, BrokerRegistrationResponse).error_code == ErrorCode.NONE


def test_another_machine_with_the_same_id_has_to(cluster: Cluster) -> None:
    registration = cluster.registration(1)
    registration.log_dirs = [directory_id(9)]
    refused = cluster.do(registration, BrokerRegistrationResponse)
    assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    keep_alive(cluster, 2, 3, milliseconds=SESSION_MS + 200)
    assert cluster.do(registration, BrokerRegistrationResponse).error_code == ErrorCode.NONE


def test_a_registration_that_is_repeated_changes_nothing(cluster: Cluster) -> None:
    registration = cluster.registration(1)
    epoch = cluster.do(registration, BrokerRegistrationResponse).broker_epoch
    cluster.unfence(1, epoch)
    before = cluster.image
    assert cluster.do(registration, BrokerRegistrationResponse).broker_epoch == epoch
    assert cluster.image.brokers == before.brokers
    assert cluster.image.topics is before.topics


@pytest.mark.parametrize(
    "log_dirs",
    [[], [directory_id(2)], [directory_id(1), directory_id(1)], [bytes(16)], [bytes(15) + b"\x05"]],
    ids=["none", "of another broker", "twice", "unassigned", "reserved"],
)
def test_directories_that_cannot_be(cluster: Cluster, log_dirs: list[bytes]) -> None:
    keep_alive(cluster, 2, 3, milliseconds=SESSION_MS + 200)
    registration = cluster.registration(1)
    registration.log_dirs = log_dirs
    assert cluster.do(registration, BrokerRegistrationResponse).error_code == ErrorCode.INVALID_REGISTRATION


def test_a_controlled_shutdown_waits_until_all_know(cluster: Cluster) -> None:
    first = cluster.heartbeat(1, want_shut_down=True)
    assert (first.should_shut_down, first.is_fenced) == (False, False)
    assert cluster.image.brokers[1].in_controlled_shutdown
    assert (cluster.partition("orders").leader, cluster.partition("orders").isr) == (2, (2, 3))
    assert cluster.partition("followed").isr == (2,)
    offset = cluster.image.next_offset
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down, "others may still send clients to it"
    cluster.heartbeat(2)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.heartbeat(3)
    last = cluster.heartbeat(1, want_shut_down=True)
    assert (last.should_shut_down, last.is_fenced) == (True, True)
    assert cluster.image.brokers[1].fenced
    assert len(cluster.records) == offset + 1, "nothing but the fencing was left to write"
    epoch = cluster.image.brokers[1].epoch
    cluster.register(1, previous_broker_epoch=epoch)
    assert cluster.image.brokers[1].is_active


def test_who_leads_nothing_may_stop_at_once(cluster: Cluster) -> None:
    assert cluster.heartbeat(3, want_shut_down=True).should_shut_down
    assert cluster.image.brokers[3].fenced
    assert cluster.partition("orders").isr == (1, 2)
    assert cluster.heartbeat(3, want_shut_down=True).should_shut_down, "a fenced one as well"


def test_the_last_replica_stops_too_and_is_remembered() -> None:
    cluster = Cluster(brokers=2, features=True)
    cluster.create(assigned("orders", [1]))
    cluster.heartbeat(1, want_shut_down=True)
    partition = cluster.partition("orders")
    assert (partition.leader, partition.eligible_leader_replicas) == (NO_LEADER, (1,))
    cluster.heartbeat(2)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.register(1, previous_broker_epoch=cluster.image.brokers[1].epoch)
    assert cluster.partition("orders").leader == 1


def fall_silent(cluster: Cluster, node: int) -> None:
    others = [each for each in (1, 2, 3) if each != node]
    keep_alive(cluster, *others, milliseconds=SESSION_MS + 200)
    assert node in fenced(cluster)


def test_a_broker_that_falls_silent_again_and_again_comes_back_later_each_time(cluster: Cluster) -> None:
    waits = []
    for _ in range(7):
        fall_silent(cluster, 1)
        began_ms = cluster.monotonic_ms
        while fenced(cluster):
            keep_alive(cluster, 1, 2, 3, milliseconds=100)
        waits.append(round((cluster.monotonic_ms - began_ms) / 1000))
    assert waits == [0, 2, 4, 7, 15, 30, 30]


def test_a_broker_that_was_quiet_for_long_or_started_anew_comes_back_at_once(cluster: Cluster) -> None:
    fall_silent(cluster, 1)
    cluster.heartbeat(1)
    keep_alive(cluster, 1, 2, 3, milliseconds=301_000)
    fall_silent(cluster, 1)
    cluster.heartbeat(1)
    assert fenced(cluster) == []
    fall_silent(cluster, 1)
    cluster.register(1)
    cluster.heartbeat(1)
    assert fenced(cluster) == []


def test_a_broker_that_is_needed_is_not_kept_out(cluster: Cluster) -> None:
    for _ in range(2):
        fall_silent(cluster, 1)
        cluster.heartbeat(1)
    assert fenced(cluster) == [1]
    keep_alive(cluster, 1, 3, milliseconds=SESSION_MS + 200)
    assert fenced(cluster) == [2], "a partition has lost its leader with broker 2"


def flapping_cluster(partitions: int, *, pace: int) -> Cluster:
    cluster = Cluster(
        brokers=3,
        features=True,
        broker_session_timeout_ms=SESSION_MS,
        broker_flapping_pause_max_ms=6000,
        controller_partition_changes_max_per_second=pace,
    )
    cluster.create(*(assigned(f"t-{index}", [1, 2, 3]) for index in range(partitions)))
    return cluster


def fence_silent(cluster: Cluster, node: int, *, most_ms: int) -> float:
    """How long after the end of its session a broker is fenced that falls silent now."""
    start_ms = cluster.monotonic_ms
    others = [each for each in (1, 2, 3) if each != node]
    while not cluster.image.brokers[node].fenced:
        keep_alive(cluster, *others, milliseconds=100)
        assert cluster.monotonic_ms - start_ms < SESSION_MS + most_ms
    return cluster.monotonic_ms - start_ms - SESSION_MS


def test_brokers_that_are_silent_again_and_again_are_fenced_at_a_pace() -> None:
    cluster = flapping_cluster(partitions=300, pace=100)
    assert fence_silent(cluster, 1, most_ms=200) <= 200, "it costs 300 changes, three seconds of the pace"
    cluster.heartbeat(1)
    assert fenced(cluster) == [], "the first time it comes back at once"
    cluster.controller.note_refused(NodeId(1), -1.0)  # A word of before it came back.
    assert fence_silent(cluster, 1, most_ms=1000) >= 300, "the second time it waits for its turn"
    cluster.heartbeat(1)
    assert fenced(cluster) == [1], "and is let in when that is paid for"
    keep_alive(cluster, 1, 2, 3, milliseconds=3500)
    assert fenced(cluster) == []


def test_a_broker_that_was_never_silent_does_not_wait_for_those_that_were() -> None:
    cluster = flapping_cluster(partitions=1000, pace=100)
    fence_silent(cluster, 1, most_ms=200)
    cluster.heartbeat(1)
    assert fence_silent(cluster, 2, most_ms=200) <= 200, "though ten seconds of the pace are spent"
    # Nor does a silent broker that has to wait get its leaderships.
    cluster.heartbeat(2)
    keep_alive(cluster, 2, milliseconds=SESSION_MS + 200)
    assert fenced(cluster) == [1, 3], "broker 3 is silent for the first time, and takes broker 1 with it"


def test_partition_changes_are_bounded_while_brokers_come_and_go() -> None:
    cluster = flapping_cluster(partitions=100, pace=20)
    before, start_ms = len(cluster.records), cluster.monotonic_ms
    for round_ in range(20):
        node = 1 + round_ % 3
        fence_silent(cluster, node, most_ms=60_000)
        for _ in range(200):
            keep_alive(cluster, 1, 2, 3, milliseconds=100)
            if not cluster.image.brokers[node].fenced:
                break
        for name, topic in cluster.image.topics.items():
            if node not in topic.partitions[0].isr:
                cluster.expand(name, node)
    changes = sum(isinstance(each, PartitionChangeRecord) for each in cluster.records[before:])
    passed_s = (cluster.monotonic_ms - start_ms) / 1000
    assert changes >= 20 * 200, "they do come and go"
    assert changes <= 20 * passed_s + 3 * 200, f"{changes} in {passed_s} s"
