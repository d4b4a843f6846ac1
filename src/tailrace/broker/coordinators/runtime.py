"""The coordinators of this broker: which partitions of an internal topic it leads, and who asks which of them.

A group belongs to the partition that its name hashes to; the leader of that partition is its coordinator. A new leader
epoch, of this broker too, begins with an empty machine: what was not in the log is gone. Shards are loaded one after
the other, those without records at once when they are first asked.
"""

from __future__ import annotations

from asyncio import Task, get_running_loop, sleep, wait
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tailrace.broker.coordinators.loading import load
from tailrace.broker.coordinators.shard import Machine, Shard, State
from tailrace.coordinator.history import History
from tailrace.coordinator.machine import GroupMachine, import_in_steps
from tailrace.coordinator.placement import coordinator_partition
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC

if TYPE_CHECKING:
    from tailrace.broker.coordinators.calls import CoordinatorCall
    from tailrace.broker.coordinators.share_states import ShareStates
    from tailrace.broker.node import Node
    from tailrace.controller.image import MetadataImage
    from tailrace.coordinator.op import Told
    from tailrace.replica.partition import Partition

_log = events.logger("coordinator")

# After a log could not be read.
_RETRY_SECONDS = 1.0


class Coordinators:
    """The coordinators of one internal topic."""

    def __init__(self, node: Node, topic_name: str, make_machine: Callable[[], Machine]) -> None:
        self.shards: dict[int, Shard] = {}  # By partition: those that this broker leads.
        self._node = node
        self._topic_name = topic_name
        self._make_machine = make_machine
        self._partition_count = 0
        self._to_load: OrderedDict[Shard, None] = OrderedDict()
        self._loading: Task[None] | None = None
        self._is_closed = False
        self.follow_image(None, node.image)

    # ---- asking

    def submit(self, key: str, call: CoordinatorCall) -> None:
        """The call is answered, now or later."""
        try:
            shard = self._shard_of(key)
        except KafkaError as error:
            call.fail(error)
        else:
            shard.submit(call)

    def find(self, key: str) -> Shard:
        """The shard of a group, to look at. Raises KafkaError if it is not here, or not loaded yet."""
        shard = self._shard_of(key)
        shard.check_active()
        return shard

    def shard_at(self, index: int) -> Shard:
        """That of a partition. Raises KafkaError if it is not here, or not loaded yet."""
        shard = self.shards.get(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Broker {self._node.node_id} does not lead it")
        self._check_lease(shard)
        self._hurry(shard)
        shard.check_active()
        return shard

    def active_shards(self) -> list[Shard]:
        """All of this broker, to look at. Raises KafkaError if one is not loaded yet."""
        for shard in list(self.shards.values()):
            self._check_lease(shard)
            self._hurry(shard)
            shard.check_active()
        return list(self.shards.values())

    def _shard_of(self, key: str) -> Shard:
        count = self._partition_count
        shard = self.shards.get(coordinator_partition(key, count)) if count else None
        if shard is None:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR,
                f"Broker {self._node.node_id} does not coordinate {key!r}. FindCoordinator tells who does",
            )
        self._check_lease(shard)
        if shard.state is State.LOADING:
            self._hurry(shard)
        return shard

    def _check_lease(self, shard: Shard) -> None:
        """Past its lease this broker coordinates what it is still followed in."""
        if self._node.replicas.lease.is_past and not shard.may_act:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"Broker {self._node.node_id} has lost touch with the cluster")

    # ---- following the image

    def follow_image(self, old: MetadataImage | None, new: MetadataImage) -> None:
        if self._is_closed:
            return
        before = None if old is None else old.topics.get(self._topic_name)
        topic = new.topics.get(self._topic_name)
        if topic is not before:
            led = {
                index: state.leader_epoch
                for index, state in (topic.partitions.items() if topic is not None else ())
                if state.leader == self._node.node_id
            }
            is_same = topic is not None and before is not None and topic.id == before.id
            self._partition_count = 0 if topic is None else len(topic.partitions)
            for index, shard in list(self.shards.items()):
                if not is_same or led.get(index) != shard.leader_epoch:
                    del self.shards[index]
                    self._to_load.pop(shard, None)
                    shard.close()
            for index, leader_epoch in led.items():
                if index not in self.shards:
                    self._add(index, leader_epoch)
        if old is not None and old.topics is not new.topics:
            for shard in list(self.shards.values()):
                shard.on_image(old)

    def _add(self, index: int, leader_epoch: int) -> None:
        shard = self.shards[index] = Shard(
            self._node,
            index,
            leader_epoch=leader_epoch,
            make_machine=self._make_machine,
            load_soon=self._load_soon,
        )
        self._load_soon(shard)

    # ---- loading

    def _load_soon(self, shard: Shard) -> None:
        self._to_load[shard] = None
        if self._loading is None:
            self._loading = get_running_loop().create_task(self._load_all(), name="load coordinators")

    def _hurry(self, shard: Shard) -> None:
        """A shard that is asked for is loaded next, and at once if there is nothing in its log: who has just been told
        who coordinates a new group need not be told to wait."""
        if shard not in self._to_load:
            return
        try:
            partition = self._partition_of(shard)
        except KafkaError:
            return
        log = partition.log
        if log.log_start_offset == log.log_end_offset:
            del self._to_load[shard]
            shard.begin_loading()
            shard.activate(partition, log.log_end_offset)
        else:
            self._to_load.move_to_end(shard, last=False)

    async def _load_all(self) -> None:
        while self._to_load:
            shard, _ = self._to_load.popitem(last=False)
            partition: Partition | None = None
            try:
                partition = self._partition_of(shard)
                await load(self._node, shard, partition)
            except KafkaError as error:
                # It does not lead yet, or not for sure: past its lease, for one.
                _log.warning("a coordinator is loaded later", partition=shard.index, cause=error)
                self._load_later(shard)
            except (StorageError, ProtocolError, OSError) as error:
                _log.error("a coordinator cannot be loaded", partition=shard.index, cause=error)
                self._load_later(shard)
            except Exception as error:
                _log.error("a coordinator cannot be loaded", trace=True, partition=shard.index)
                self._node.judge_bug(error, partition)
                self._load_later(shard)
            await sleep(0)
        self._loading = None

    def _partition_of(self, shard: Shard) -> Partition:
        partition = self._node.replicas.find(self._topic_name, shard.index)
        if partition.leader_epoch != shard.leader_epoch:
            raise partition.not_leader()
        partition.check_leader()
        return partition

    def _load_later(self, shard: Shard) -> None:
        def load_again() -> None:
            if self.shards.get(shard.index) is shard and shard.state is State.LOADING:
                self._load_soon(shard)

        get_running_loop().call_later(_RETRY_SECONDS, load_again)

    async def close(self) -> None:
        """All who wait are answered."""
        self._is_closed = True
        shards, self.shards = self.shards, {}
        for shard in shards.values():
            shard.close()
        if self._loading is not None:
            self._loading.cancel()
            await wait((self._loading,))


class GroupCoordinators(Coordinators):
    def __init__(self, node: Node, share_states: Callable[[], ShareStates]) -> None:
        config = node.config
        self._share_states = share_states
        self.history = History(
            groups_max=config.group_history_max_groups, rebalances_max=config.group_history_max_rebalances
        )
        super().__init__(node, CONSUMER_OFFSETS_TOPIC, lambda: GroupMachine(self.history, self._owe_states))
        self._import(import_in_steps())

    def _owe_states(self, group_id: str) -> Told:
        from tailrace.broker.coordinators.share_states import Initialization

        return Initialization(self._share_states(), lambda: self.find(group_id))

    def _import(self, steps: Iterator[None]) -> None:
        """A step each turn, while the first client is on its way."""
        for _ in steps:
            get_running_loop().call_soon(self._import, steps)
            return
