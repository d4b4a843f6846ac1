"""What the leader of a mirror does to its log: writes what the source has, as it is, and in the end what ends it.

A mirror has the source's offsets, leader epochs, timestamps, producers and markers. Its own leader epoch is as high as
the source's or higher, and stands in no batch and in no history as long as the mirror lasts: so histories agree on both
sides, and its followers find by them where logs part, as anywhere.

The first thing that a leader writes of its own are markers that abort the transactions which are still open, and then a
barrier: producers of the source are unknown from there on. Where these are in the log no later leader writes them again
(`is_opening_due`): that they are missing can be seen by the first epochs from `opening_epoch` on. No record is taken
before the barrier.

Never asks the source: `broker.mirrors` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailrace.log.producers import MAX_EPOCH
from tailrace.log.validation import Origin
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.replica.repair.cut import settle_cut
from tailrace.replica.repair.failures import storage_failure
from tailrace.wire.markers import Marker, build_barrier, build_marker, is_barrier

if TYPE_CHECKING:
    from tailrace.controller.image import ClosedTopic
    from tailrace.log.log import Log
    from tailrace.replica.partition import Partition

_log = events.logger("mirror")


class MirrorRole(NamedTuple):
    """What the metadata says of a topic that is a mirror, or was."""

    link_name: str
    is_read_only: bool
    opening_epoch: int
    closed: ClosedTopic | None = None  # The cluster that it was handed over to.


class Cut(NamedTuple):
    """What the leader of a mirror has saved, to cut it."""

    epoch: int  # The one that begins with the cut, in which this leader is alone in sync.
    offset: int


def is_closed(role: MirrorRole | None) -> bool:
    """To clients."""
    return role is not None and (role.is_read_only or role.closed is not None)


def refuse_writes(partition: Partition, origin: Origin = Origin.CLIENT) -> None:
    """Raises for a mirror, which nobody but its source changes, and for clients of what was handed over to one. What is
    to be opened is opened."""
    role = partition.mirror
    if role is None:
        return
    if role.closed is not None and origin is Origin.CLIENT:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{partition.topic_partition} was handed over to the cluster {role.closed.cluster_id}, which "
            "has mirrored it: write there.",
        )
    if partition.is_mirror:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{partition.topic_partition} is a mirror by the link {role.link_name!r}: it takes what its "
            "source has, and nothing else. Write to the source, or promote the mirror first, or fail it over.",
        )
    if partition.must_open:
        open_mirror(partition)


def append_mirrored(partition: Partition, batches: memoryview, *, leader_epoch: int) -> None:
    """Whole batches behind the log end, fetched while this broker led in `leader_epoch`, and none of a later epoch.
    Raises KafkaError for what is damaged or does not follow, and then nothing is written."""
    _check_leads(partition, leader_epoch)
    log = partition.log
    try:
        before = log.log_end_offset
        log.append_as_follower(batches, leader_epoch=leader_epoch)
        partition.check_offsets()
    except (StorageError, AssertionError) as error:
        raise storage_failure(log, error) from error
    partition.note_appended(before, len(batches))
    log.producers.forget_decided(partition.high_watermark)


def begin_at(partition: Partition, offset: int, *, leader_epoch: int) -> None:
    """What lies before it the source has deleted: the log goes on there. KafkaError."""
    _check_leads(partition, leader_epoch)
    log = partition.log
    assert offset > log.log_end_offset, f"a mirror goes back to {offset}: {log}"
    try:
        log.truncate_fully_and_start_at(offset)
        log.epochs.clear()
        if partition.tier is not None:
            partition.tier.advance_start(offset)
    except (StorageError, AssertionError) as error:
        raise storage_failure(log, error) from error
    partition.high_watermark = offset
    partition.readers.tell()
    partition.replica_readers.tell()


def follow_start(partition: Partition, offset: int) -> None:
    """The source has deleted what lies before it. KafkaError."""
    offset = min(offset, partition.high_watermark)
    if offset > partition.log_start_offset and partition.is_mirror and partition.is_leader:
        try:
            (partition.tier or partition.log).advance_start(offset)
        except (StorageError, AssertionError) as error:
            raise storage_failure(partition.log, error) from error
        partition.readers.tell()


def take_cut(partition: Partition) -> None:
    """At the beginning of a leader epoch: what the leader has saved goes, if the metadata let it."""
    cut, partition.cut_to = partition.cut_to, None
    if cut is None or cut.epoch != partition.leader_epoch or not partition.is_mirror:
        return
    log, before = partition.log, partition.log.log_end_offset
    try:
        log.truncate(cut.offset)
    except StorageError:
        return  # The log is offline, and says so to whoever asks.
    settle_cut(partition)
    _log.warning(
        "a mirror was cut to what its source has",
        partition=partition.topic_partition,
        offset=log.log_end_offset,
        end_offset=before,
    )


def is_opening_due(log: Log, role: MirrorRole) -> bool:
    """Whether the log lacks what ends the mirror. Nothing but markers comes before the barrier in the epochs of its
    own; what follows it there may be cut away from it again by retention alone."""
    if role.is_read_only or role.opening_epoch < 0:
        return False
    start = next((each.start_offset for each in log.epochs.entries if each.epoch >= role.opening_epoch), None)
    if start is None or start >= log.log_end_offset:
        return True
    for number, segment in enumerate(log.segments):
        if number + 1 < len(log.segments) and log.segments[number + 1].base_offset <= start:
            continue
        position = segment.position_of(start) if start > segment.base_offset else 0
        for at, header in segment.headers(position) if position is not None else ():
            if header.base_offset < start:
                continue
            if not header.is_control or is_barrier(header, segment.file.read(at, header.size_bytes)):
                return False
    return True


def open_mirror(partition: Partition) -> None:
    """Ends what was mirrored, before anything else is written. KafkaError if the disk does not take it."""
    assert partition.must_open, f"{partition!r} is opened again"
    log, epoch = partition.log, partition.leader_epoch
    now_ms = log.files.now_ms()
    first_offset = log.log_end_offset
    open_ones = [(number, each) for number, each in log.producers.states.items() if each.current_txn_first_offset >= 0]
    size_bytes = 0
    try:
        for producer_id, state in sorted(open_ones):
            marker = build_marker(
                Marker(is_commit=False, coordinator_epoch=max(0, state.coordinator_epoch)),
                producer_id=producer_id,
                producer_epoch=min(state.epoch + 1, MAX_EPOCH),
                timestamp_ms=now_ms,
            )
            size_bytes += len(marker)
            log.append_as_leader(memoryview(marker), leader_epoch=epoch, origin=Origin.COORDINATOR)
        barrier = build_barrier(timestamp_ms=now_ms)
        size_bytes += len(barrier)
        log.append_as_leader(memoryview(barrier), leader_epoch=epoch, origin=Origin.COORDINATOR)
    except (StorageError, AssertionError) as error:
        raise storage_failure(log, error) from error
    partition.end_opening()
    partition.note_appended(first_offset, size_bytes)
    log.producers.forget_decided(partition.high_watermark)
    _log.info(
        "a mirror is open",
        partition=partition.topic_partition,
        offset=first_offset,
        epoch=epoch,
        aborted_transactions=len(open_ones),
    )


def _check_leads(partition: Partition, leader_epoch: int) -> None:
    if not partition.is_mirror or not partition.is_leader or leader_epoch != partition.leader_epoch:
        raise partition.not_leader()
