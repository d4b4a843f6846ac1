"""What a follower does to its log: appends what the leader sent, and cuts off what the leader does not have.

- Only for the leader epoch that the partition knows now: what a deposed leader sends late is dropped.
- A cut goes to where the logs of leader and follower have parted (KIP-101, KIP-279), never further. One that takes what
  was confirmed needs leave (`cuts`): it may be the leader that has lost something.
- The high watermark is what the leader says, as far as this log reaches; here it falls only with the log.
"""

from __future__ import annotations

from tailrace.log.log import Log
from tailrace.model.errors import StorageError
from tailrace.model.ports import RemoteStart
from tailrace.replica.following.cuts import Cuts
from tailrace.replica.partition import Partition
from tailrace.replica.repair.cut import settle_cut
from tailrace.replica.repair.failures import storage_failure


def append_fetched(
    partition: Partition, batches: memoryview, *, leader_epoch: int, high_watermark: int, log_start_offset: int
) -> int:
    """What the leader of `leader_epoch` sent for the log end, and how far it has come. Gives the bytes written. Raises
    KafkaError for what does not fit or was damaged, and then nothing is written."""
    if partition.is_leader or leader_epoch != partition.leader_epoch:
        raise partition.not_leader()
    log = partition.log
    size_bytes = 0
    try:
        if len(batches):
            before = log.log_end_offset
            log.append_as_follower(batches, leader_epoch=leader_epoch)
            if log.log_end_offset > before:
                size_bytes = len(batches)
                partition.flusher.note_written(partition, size_bytes)
                partition.traffic.replication_bytes_in += size_bytes
        reached = min(high_watermark, log.log_end_offset)
        if reached > partition.high_watermark:
            partition.high_watermark = reached
            log.producers.forget_decided(reached)
            partition.readers.tell()
        (partition.tier or log).advance_start(min(log_start_offset, partition.high_watermark))
        partition.check_offsets()
    except (StorageError, AssertionError) as error:
        raise storage_failure(log, error) from error
    if log.unflushed_messages >= partition.flush_messages:
        partition.flusher.request(partition)
    return size_bytes


def may_fetch(partition: Partition) -> bool:
    """A fetch from the log end tells the leader that all before it is here: it waits for a sync where the topic's
    records are confirmed only once they are synced."""
    return partition.durable_end == partition.log.log_end_offset


def truncate_to_divergence(partition: Partition, leader_epoch: int, end_offset: int, cuts: Cuts) -> None:
    """The leader's largest epoch that is not above the one fetched last, and where it ended there: what this log has
    beyond it the leader does not have. If this log does not know that epoch, it goes back to the end of the one before,
    and the next fetch asks again (KIP-279). KafkaError, as of `truncate`."""
    log = partition.log
    known_epoch, known_end = log.epochs.end_offset_for(leader_epoch, log.log_end_offset)
    if known_end < 0:
        target = end_offset
    elif known_epoch == leader_epoch:
        target = min(known_end, end_offset)
    else:
        target = known_end
    truncate(partition, min(target, log.log_end_offset), cuts)


def truncate(partition: Partition, offset: int, cuts: Cuts) -> None:
    """KafkaError if it must not be cut there, or not yet."""
    log = partition.log
    cuts.check(partition, offset)
    try:
        log.truncate(offset)
    except (StorageError, AssertionError) as error:
        raise storage_failure(log, error) from error
    settle_cut(partition)


def restart_at(partition: Partition, offset: int, cuts: Cuts) -> None:
    """The leader's log starts behind the end of this one: nothing here is of use. KafkaError, as of `truncate`."""
    cuts.check(partition, partition.log.log_start_offset)
    try:
        partition.log.truncate_fully_and_start_at(offset)
        partition.log.epochs.clear()
    except (StorageError, AssertionError) as error:
        raise storage_failure(partition.log, error) from error
    partition.high_watermark = offset
    settle_cut(partition)


def restart_after(partition: Partition, start: RemoteStart) -> None:
    """What the leader's local log does not have any more lies in the store: this one goes on after it, and nothing that
    was confirmed is given up. The history has been stored."""
    log = partition.log
    try:
        begin_after(log, start)
    except (StorageError, AssertionError) as error:
        raise storage_failure(log, error) from error
    partition.high_watermark = start.offset
    settle_cut(partition)


def begin_after(log: Log, start: RemoteStart) -> None:
    """Nothing is left in the log; its history is that of what lies in the store. StorageError."""
    log.truncate_fully_and_start_at(start.offset)
    with log.files.disk_errors(f"{log.folder} cannot go on after what lies in the store"):
        log.epochs.restore(start.epochs)
        if start.producers:
            log.producers.load(start.producers)
            log.files.snapshots.write(start.offset, start.producers)
