"""A cluster as its controller sees it, and a model of what each replica holds: what can happen, and what must hold
after each step (`test_controller`)."""

from collections.abc import Callable
from typing import ClassVar

from tailrace.controller.image import NO_LEADER, MetadataImage, PartitionImage
from tailrace.controller.partitions.change import (
    RECOVERED,
    RECOVERING,
    agreed_min_insync_replicas,
)
from tailrace.controller.replay import Replay
from tailrace.controller.snapshot import records_of
from tailrace.model.ids import NodeId
from tailrace.wire.apis.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tailrace.wire.apis.quorum import (
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerRegistrationResponse,
)
from tailrace.wire.record_envelopes import decode_metadata_record, encode_metadata_record
from tests.unit.controller.cluster import CLUSTER_ID, Cluster, alter_topic, assigned, directory_id

NODES = (1, 2, 3, 4)
# One partition each; "careful" needs two in sync, "careless" lets anybody lead.
TOPICS = ("plain", "careful", "careless", "lone")
SESSION_MS = 2500
# eligible.leader.wait.ms
WAIT_MS = 3000
# The epochs in which its records were written: two logs are the same as far as these are.
Log = tuple[int, ...]


class World:
    def __init__(self) -> None:
        self.cluster = Cluster(
            brokers=0,
            features=True,
            broker_session_timeout_ms=SESSION_MS,
            leader_imbalance_check_interval_seconds=3,
        )
        self.down: dict[int, bool] = {}
        # Replicas that lack what they had, and have not copied it since.
        self.damaged: dict[str, set[int]] = {name: set() for name in TOPICS}
        # Topic and leader epoch, and since when somebody could lead and is not let yet.
        self.held_since_ms: dict[tuple[str, int], float] = {}
        self.disks = dict.fromkeys(NODES, 0)
        # By node: the epoch that its next incarnation can prove.
        self.proofs: dict[int, int] = {}
        for node in NODES:
            self._start(node)
            self.heartbeat(node, "")
        replicas = {"plain": [1, 2, 3], "careful": [2, 3, 4], "careless": [3, 4, 1], "lone": [4]}
        self.cluster.create(*(assigned(name, replicas[name]) for name in TOPICS))
        alter_topic(self.cluster, "careful", "min.insync.replicas", "2")
        alter_topic(self.cluster, "careless", "unclean.leader.election.enable", "true")
        self.logs: dict[str, dict[int, Log]] = {name: dict.fromkeys(replicas[name], ()) for name in TOPICS}
        self.committed: dict[str, Log] = dict.fromkeys(TOPICS, ())
        # Replicas whose disk was lost and that have not copied anything since.
        self.emptied: dict[str, set[int]] = {name: set() for name in TOPICS}
        # By topic and leader epoch.
        self.leaders: dict[tuple[str, int], int] = {}
        self.seen = self.cluster.image

    # ---- the controller's side

    def _start(self, node: int, *, has_everything: bool = False) -> None:
        proof = self.proofs.get(node, -1) if has_everything else -1
        registration = self.cluster.registration(node, previous_broker_epoch=proof)
        registration.log_dirs = [directory_id(node, self.disks[node])]
        response = self.cluster.do(registration, BrokerRegistrationResponse)
        if response.error_code:
            return
        self.proofs[node] = response.broker_epoch
        self.down.pop(node, None)
        for name in TOPICS:
            if node in self.damaged[name]:
                self._report(node, name)

    def _report(self, node: int, name: str) -> None:
        log = self.logs[name].get(node)
        if log is not None:
            last_epoch = log[-1] if log else -1
            self.cluster.report(node, name, len(log), last_epoch=last_epoch, is_damaged=node in self.damaged[name])

    def report(self) -> None:
        """What every broker does by itself when it hears of a partition without a leader."""
        for name in TOPICS:
            for node in set(self.cluster.image.brokers) - set(self.down):
                if self.partition(name).leader == NO_LEADER:
                    self._report(node, name)

    def _assign(self, node: int) -> None:
        """An emptied disk has a new id: the broker tells that its replicas are there now."""
        directory = AssignReplicasToDirsRequest.DirectoryData(
            id=directory_id(node, self.disks[node]),
            topics=[
                AssignReplicasToDirsRequest.TopicData(
                    topic_id=topic.id, partitions=[AssignReplicasToDirsRequest.PartitionData(partition_index=index)]
                )
                for topic, index, _ in self.cluster.image.partitions_of(node)
            ],
        )
        request = AssignReplicasToDirsRequest(broker_id=node, broker_epoch=self.proofs[node], directories=[directory])
        self.cluster.do(request, AssignReplicasToDirsResponse)

    def _propose(self, topic: str, isr: list[int]) -> None:
        self.cluster.do(self.cluster.proposal(topic, isr), AlterPartitionResponse)

    # ---- steps

    def produce(self, node: int, topic: str) -> None:
        leader = self.leader(topic)
        if leader is not None:
            self.logs[topic][leader] += (self.partition(topic).leader_epoch,) * (1 + node % 2)

    def write_as_if_leading(self, node: int, topic: str) -> None:
        """A leader that was cut off and does not know it."""
        epoch = self.partition(topic).leader_epoch - 1
        if node in self.logs[topic] and node not in self.down and self.leaders.get((topic, epoch)) == node:
            self.logs[topic][node] += (epoch,)

    def copy(self, node: int, topic: str) -> None:
        leader = self.leader(topic)
        if leader is not None and node in self.logs[topic] and node not in self.down:
            self.logs[topic][node] = self.logs[topic][leader]
            self.emptied[topic].discard(node)
            self.damaged[topic].discard(node)

    def expand(self, node: int, topic: str) -> None:
        self.copy(node, topic)
        leader, logs = self.leader(topic), self.logs[topic]
        if leader is not None and node in logs and node not in self.down and node in self.cluster.image.brokers:
            self._propose(topic, [*self.partition(topic).isr, *({node} - {*self.partition(topic).isr})])

    def shrink(self, node: int, topic: str) -> None:
        if self.leader(topic) not in (None, node):
            self._propose(topic, [member for member in self.partition(topic).isr if member != node])

    def crash(self, node: int, _: str) -> None:
        self.down[node] = self.down.get(node, True)

    def lose_power(self, node: int, topic: str) -> None:
        self.down[node] = False
        cut = self.logs[topic].get(node, ())
        for logs in self.logs.values():
            if node in logs:
                logs[node] = logs[node][: max(0, len(logs[node]) - 1 - len(cut) % 3)]

    def lose_disk(self, node: int, _: str) -> None:
        self.down[node] = False
        self.disks[node] += 1
        for name, logs in self.logs.items():
            if node in logs:
                logs[node] = ()
                self.emptied[name].add(node)
                self.damaged[name].discard(node)

    def damage(self, node: int, topic: str) -> None:
        """The broker dies, and while it is down its logs lose records: recovery will find it."""
        self.crash(node, topic)
        for name, logs in self.logs.items():
            if logs.get(node):
                logs[node] = logs[node][: len(logs[node]) // 2]
                self.damaged[name].add(node)

    def start(self, node: int, topic: str) -> None:
        if node in self.down:
            self._start(node, has_everything=self.down[node])
        elif node not in self.cluster.image.brokers:
            self._start(node)
        if node not in self.down:
            unfence = self.cluster.heartbeat
            steps = (self._assign, unfence) if topic == "plain" else (unfence, self._assign)
            for step in steps:
                step(node)

    def heartbeat(self, node: int, _: str) -> None:
        if node not in self.down and node in self.cluster.image.brokers:
            self.cluster.heartbeat(node)

    def stop(self, node: int, _: str) -> None:
        if node in self.down or node not in self.cluster.image.brokers:
            return
        for _attempt in range(8):
            # As long as a session: those that are dead must be fenced before all others know.
            for other in NODES:
                if other != node:
                    self.heartbeat(other, _)
            self.cluster.pass_time(SESSION_MS / 5)
            if self.cluster.heartbeat(node, want_shut_down=True).should_shut_down:
                self.down[node] = True
                return
        raise AssertionError(f"broker {node} was not let go")

    def cut_off(self, node: int, topic: str) -> None:
        """One broker, or with its neighbour, for longer than a session."""
        silent = {node, node % len(NODES) + 1} if topic == "plain" else {node}
        for _ in range(8):
            for other in NODES:
                if other not in silent:
                    self.heartbeat(other, topic)
            self.cluster.pass_time(SESSION_MS / 5)

    def reassign(self, node: int, topic: str) -> None:
        factor = 1 if topic == "lone" else 3
        replicas = [1 + (node + step) % len(NODES) for step in range(factor)]
        self._reassign(topic, replicas)

    def cancel(self, _: int, topic: str) -> None:
        self._reassign(topic, None)

    def _reassign(self, topic: str, replicas: list[int] | None) -> None:
        partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=replicas)
        asked = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[partition])
        self.cluster.do(AlterPartitionReassignmentsRequest(topics=[asked]), AlterPartitionReassignmentsResponse)

    def elect(self, node: int, topic: str) -> None:
        asked = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0])
        # An operator may force a leader on any topic, which the check of committed records has to know.
        is_forced = node == 1 and topic == "careless"
        request = ElectLeadersRequest(election_type=int(is_forced), topic_partitions=[asked])
        self.cluster.do(request, ElectLeadersResponse)

    def need(self, node: int, topic: str) -> None:
        alter_topic(self.cluster, topic, "min.insync.replicas", str(1 + node % 3))

    def unregister(self, node: int, topic: str) -> None:
        if topic == "lone" and node in self.down:
            self.cluster.do(UnregisterBrokerRequest(broker_id=node), UnregisterBrokerResponse)

    # ---- looking

    def partition(self, name: str) -> PartitionImage:
        return self.cluster.partition(name)

    def leader(self, name: str) -> NodeId | None:
        """That can do something."""
        leader = self.partition(name).leader
        return None if leader == NO_LEADER or leader in self.down else leader

    def can_lead(self, name: str, node: int) -> bool:
        broker = self.cluster.image.brokers.get(node)
        return broker is not None and broker.is_active and broker.has_online(self.partition(name).directory(node))

    # ---- checks

    def check(self) -> None:
        for name in TOPICS:
            self._check_sets(name)
            self._check_epochs(name, self.seen.topics[name].partitions[0])
            self._follow_replicas(name)
            self._check_leader(name, self.seen.topics[name].partitions[0])
            self._commit(name)
        self.seen = self.cluster.image

    def check_images(self) -> None:
        image = self.cluster.image
        assert self.cluster.rebuilt() == image
        assert from_snapshot(image) == image
        index: dict[int, dict[str, set[int]]] = {}
        for name in TOPICS:
            for node in self.partition(name).replicas:
                index.setdefault(node, {}).setdefault(name, set()).add(0)
        assert image.partitions_by_broker == index

    def _check_sets(self, name: str) -> None:
        partition = self.partition(name)
        replicas, isr = set(partition.replicas), set(partition.isr)
        eligible = set(partition.eligible_leader_replicas)
        assert len(replicas) == len(partition.replicas) == len(partition.directories)
        assert isr <= replicas
        assert eligible <= replicas
        assert not eligible & isr
        assert {*partition.adding_replicas, *partition.removing_replicas} <= replicas
        assert not set(partition.adding_replicas) & set(partition.removing_replicas)
        assert all(self.cluster.image.is_active(node) for node in isr), "a fenced broker is in no in-sync set"
        needed = min(agreed_min_insync_replicas(self.cluster.image, name), len(replicas))
        assert not eligible or len(isr) < needed
        if partition.leader == NO_LEADER:
            able = [node for node in isr | eligible if self.can_lead(name, node)]
            compared = eligible | self._restarted(name)
            now_ms, key = self.cluster.monotonic_ms, (name, partition.leader_epoch)
            since_ms = self.held_since_ms.setdefault(key, now_ms)
            if not able:
                del self.held_since_ms[key]
                return
            assert now_ms <= since_ms + WAIT_MS, "a replica with everything can lead, and nobody does"
            assert len(compared) > 1, "nobody else is to be waited for"
            there = {node for node in compared if self.can_lead(name, node)} - set(self.down)
            assert not compared <= there, "all are there, and have told"
        else:
            self.leaders[name, partition.leader_epoch] = partition.leader
            assert partition.leader in isr
            assert self.can_lead(name, partition.leader)

    def _restarted(self, name: str) -> set[int]:
        restarted = self.cluster.controller._candidates.restarted((self.cluster.image.topics[name].id, 0))
        return {*restarted} & {*self.partition(name).replicas} & self.cluster.image.brokers.keys()

    def _check_epochs(self, name: str, old: PartitionImage) -> None:
        """A step may be several batches; each sets the leader at most once."""
        new = self.partition(name)
        assert new.leader_epoch - old.leader_epoch <= new.partition_epoch - old.partition_epoch
        if new.leader != old.leader:
            assert new.leader_epoch > old.leader_epoch
        if new != old:
            assert new.partition_epoch > old.partition_epoch

    def _follow_replicas(self, name: str) -> None:
        """A replica that is taken away is deleted; one that is added begins empty."""
        logs = self.logs[name]
        self.logs[name] = {node: logs.get(node, ()) for node in self.partition(name).replicas}
        self.emptied[name] &= set(self.logs[name])

    def _check_leader(self, name: str, old: PartitionImage) -> None:
        new = self.partition(name)
        if new.leader_epoch == old.leader_epoch or self.leader(name) is None:
            # What has become of a broker that is down the controller hears when it starts again.
            return
        log, committed = self.logs[name][new.leader], self.committed[name]
        if log[: len(committed)] != committed:
            assert new.leader_recovery_state == RECOVERING, f"{name}: {new} lost {committed}"
            assert name == "careless" or new.leader not in self.emptied[name], "an empty replica leads"
            self.committed[name] = log[: common(log, committed)]
        if (old.leader_recovery_state, new.leader_recovery_state) == (RECOVERED, RECOVERING):
            better = [node for node in (*old.isr, *old.eligible_leader_replicas) if self._stayed(name, node)]
            assert not better, "an unclean election though a replica with everything could lead"
            others = {*old.eligible_leader_replicas} - {new.leader} - self.emptied[name]
            is_all_there_is = new.leader in self.damaged[name] and not others
            is_last_known = old.last_known_elr in ((new.leader,), ())
            assert name == "careless" or is_last_known or is_all_there_is, "an unclean election"

    def _stayed(self, name: str, node: int) -> bool:
        """Whether a broker could lead all the time, as the same incarnation as before the step."""
        old, new = self.seen.brokers.get(node), self.cluster.image.brokers.get(node)
        same = old is not None and new is not None and old.is_active and old.epoch == new.epoch
        return same and node in self.partition(name).replicas and self.can_lead(name, node)

    def _commit(self, name: str) -> None:
        leader, partition = self.leader(name), self.partition(name)
        needed = min(agreed_min_insync_replicas(self.cluster.image, name), len(partition.replicas))
        if leader is None or len(partition.isr) < needed:
            return
        log = self.logs[name][leader]
        high_watermark = min(common(self.logs[name][node], log) for node in partition.isr)
        if high_watermark > len(self.committed[name]):
            self.committed[name] = log[:high_watermark]

    STEPS: ClassVar[tuple[Callable[["World", int, str], None], ...]] = (
        produce,
        produce,
        copy,
        copy,
        expand,
        expand,
        write_as_if_leading,
        shrink,
        crash,
        lose_power,
        lose_disk,
        damage,
        start,
        start,
        heartbeat,
        heartbeat,
        stop,
        cut_off,
        reassign,
        cancel,
        elect,
        need,
        unregister,
    )


def common(one: Log, other: Log) -> int:
    return next(
        (index for index, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )


def from_snapshot(image: MetadataImage) -> MetadataImage:
    replay = Replay(MetadataImage(CLUSTER_ID))
    for group in records_of(image):
        for record in group:
            replay.replay_record(0, decode_metadata_record(encode_metadata_record(record)))
            replay.replay_control(0)
    replay.replay_control(image.next_offset)
    return replay.image()
