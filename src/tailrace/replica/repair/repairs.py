"""What follows on damage, partition by partition, until it is gone:

    follower   takes the range from its leader or, if that one cannot give it, from another in-sync replica
    leader     looks for an in-sync replica that can read the range, has the controller give it the lead, and goes on as
               a follower. A controller that does not do so (Kafka's) costs only this: the range is taken from that
               replica while leading
    unread     records of a leader that nobody has confirmed, and that no follower can take, keep all of them from being
               in sync: the leader calls itself damaged, and one that has what was confirmed is elected in its place
    alone      nothing can be done: readers of the range get CORRUPT_MESSAGE, and the log says so

What cannot be mended now is tried again, less and less often. One partition at a time: damage is rare, and a repair
reads and writes a whole segment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tailrace.log.files.segment import LOG_SUFFIX
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import NodeId, TopicPartition
from tailrace.model.ports import Ports
from tailrace.replica.manager import ReplicaManager
from tailrace.replica.partition import Partition
from tailrace.replica.repair.mending import Mending, mend_log
from tailrace.replica.repair.source import CallBroker, RangeSource

_log = events.logger("repair")

# Between two tries at one partition; it doubles up to the maximum, and begins anew with another leader epoch.
_PAUSE_SECONDS = 0.2
_PAUSE_MAX_SECONDS = 60.0
# How often a cleaner that is at work on the log is looked at.
_CLEANER_SECONDS = 0.1
_CLEANER_LOOKS = 600

# Asks the controller for another leader: the partition, and the replica that is to lead. Raises KafkaError.
MoveLead = Callable[[Partition, NodeId], Awaitable[None]]
# Tells the controller that the replica of here lacks records that it had. Raises KafkaError.
CallDamaged = Callable[[Partition], Awaitable[None]]


class Repairs:
    def __init__(
        self,
        replicas: ReplicaManager,
        ports: Ports,
        *,
        call: CallBroker | None,
        move_lead: MoveLead | None,
        call_damaged: CallDamaged | None = None,
        is_compacting: Callable[[TopicPartition], bool],
    ) -> None:
        """Without `call` there is nobody to ask."""
        self.repaired_count = 0  # Damaged ranges that are whole again, since the start.
        self._replicas = replicas
        self._disk = ports.disk
        self._background = ports.background
        self._call = call
        self._move_lead = move_lead
        self._call_damaged = call_damaged
        self._is_compacting = is_compacting
        self._waiting: dict[Partition, _Try] = {}  # In the order in which damage was found.
        self._wakeup = asyncio.Event()

    def submit(self, partition: Partition) -> None:
        """The partition's log has damage, or a segment whose index is to be made anew."""
        self._waiting.setdefault(partition, _Try())
        self._wakeup.set()

    async def run(self) -> None:
        """Never returns."""
        loop = asyncio.get_running_loop()
        while True:
            self._wakeup.clear()
            for partition, attempt in list(self._waiting.items()):
                if attempt.is_due(partition, loop.time()):
                    is_done = await self._try(partition, attempt)
                    attempt.note(partition, loop.time())
                    if is_done:
                        self._waiting.pop(partition, None)
            try:
                async with asyncio.timeout(_PAUSE_SECONDS if self._waiting else None):
                    await self._wakeup.wait()
            except TimeoutError:
                continue

    async def _try(self, partition: Partition, attempt: _Try) -> bool:
        """Whether nothing is left to do."""
        log = partition.log
        log.settle_damaged_ranges()
        if self._replicas.partitions.get(partition.topic_partition) is not partition or log.is_offline:
            return True
        if not log.damaged_ranges:
            return True
        before = len(log.damaged_ranges)
        try:
            await self._repair(partition)
        except (KafkaError, StorageError, OSError) as error:
            cause = error.message if isinstance(error, KafkaError) else str(error)
        except Exception as error:
            # A bug of ours must not keep other partitions from being mended.
            _log.error("a repair failed", trace=True, partition=partition.topic_partition)
            self._replicas.on_bug(error, partition)
            return False
        else:
            cause = ""
        repaired = before - len(log.damaged_ranges)
        if repaired > 0:
            self.repaired_count += repaired
            _log.info("damaged records are repaired", partition=partition.topic_partition, ranges=repaired)
        if cause and cause != attempt.cause:
            attempt.cause = cause
            _log.error(
                "damaged records are not repaired yet: readers get CORRUPT_MESSAGE",
                partition=partition.topic_partition,
                offsets=", ".join(f"{each.start_offset}-{each.end_offset - 1}" for each in log.damaged_ranges),
                cause=cause,
            )
        return not log.damaged_ranges

    async def _repair(self, partition: Partition) -> None:
        """KafkaError, StorageError, OSError."""
        log = partition.log
        try:
            source = await self._find_source(partition)
        except KafkaError:
            is_confirmed = log.damaged_ranges[0].start_offset < partition.high_watermark
            if is_confirmed or not partition.is_leader or self._call_damaged is None:
                raise
            await self._call_damaged(partition)
            return  # Whoever leads next has what was confirmed, and this log is cut to it.
        if partition.is_leader and await self._hand_over(partition, source.node_id):
            return  # The metadata will tell, and this is tried again then.
        if log.is_mended:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "an index of the log is being rebuilt")
        log.is_mended = True
        try:
            await self._wait_cleaner(partition.topic_partition)
            await mend_log(partition, source, disk=self._disk, background=self._background)
        finally:
            log.is_mended = False

    async def _wait_cleaner(self, topic_partition: TopicPartition) -> None:
        """Until the run over this log has ended; no other one begins. KafkaError."""
        for _ in range(_CLEANER_LOOKS):
            if not self._is_compacting(topic_partition):
                return
            await asyncio.sleep(_CLEANER_SECONDS)
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "the log is being compacted")

    async def _find_source(self, partition: Partition) -> RangeSource:
        """The leader or, first to last, an in-sync replica that has every damaged range. KafkaError."""
        ahead = () if partition.is_leader else (partition.leader_id,)
        others = [node for node in dict.fromkeys((*ahead, *partition.isr)) if node not in (partition.node_id, -1)]
        if self._call is None or not others:
            raise _unable("there is no other in-sync replica. Restore the file from a copy, or delete the records")
        log = partition.log
        for node in others:
            source = RangeSource(
                self._call,
                node,
                partition,
                leader_epoch_at=log.epochs.epoch_for,
                timeout_ms=self._replicas.config.replica_socket_timeout_ms,
            )
            for each in log.damaged_ranges:
                if not await source.can_read(each.start_offset, each.end_offset):
                    break
            else:
                return source
        raise _unable(f"none of the in-sync replicas {others} can read the range")

    async def _hand_over(self, partition: Partition, node_id: NodeId) -> bool:
        if self._move_lead is None:
            return False
        try:
            await self._move_lead(partition, node_id)
        except KafkaError as error:
            _log.warning(
                "the controller did not move the lead: the records are repaired while leading",
                partition=partition.topic_partition,
                to=node_id,
                cause=error.message,
            )
            return False
        _log.info("the lead moves to a replica that can read", partition=partition.topic_partition, to=node_id)
        return True

    async def renew_indexes(self, partition: Partition, base_offset: int, cause: str) -> None:
        """Makes anew the indexes of the segment that begins there: it is copied with new ones."""
        log = partition.log
        segment = next((each for each in log.segments if each.base_offset == base_offset), None)
        if segment is None or log.is_mended or log.is_offline:
            return
        _log.warning("an index is rebuilt", file=segment.path(LOG_SUFFIX), cause=cause)
        log.is_mended = True
        try:
            await self._wait_cleaner(partition.topic_partition)
            if segment is log.active:
                log.roll()
            if segment in log.segments[:-1]:
                await Mending(partition, segment, disk=self._disk, background=self._background).run(None)
        except (KafkaError, StorageError, OSError) as error:
            _log.warning("an index is not rebuilt", partition=partition.topic_partition, cause=error)
        finally:
            log.is_mended = False


class _Try:
    """When a partition is tried again."""

    def __init__(self) -> None:
        self.cause = ""  # The cause of the last failure, which is logged once.
        self._pause_seconds = _PAUSE_SECONDS
        self._due = 0.0
        self._leader_epoch = -1

    def is_due(self, partition: Partition, now: float) -> bool:
        return now >= self._due or partition.leader_epoch != self._leader_epoch

    def note(self, partition: Partition, now: float) -> None:
        if partition.leader_epoch != self._leader_epoch:
            self._leader_epoch, self._pause_seconds = partition.leader_epoch, _PAUSE_SECONDS
        self._due = now + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, _PAUSE_MAX_SECONDS)


def _unable(cause: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, cause)
