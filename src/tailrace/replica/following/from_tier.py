"""A follower that has less than its leader's local log: what lies between is in the store (KIP-405).

The leader says so by OFFSET_MOVED_TO_TIERED_STORAGE. Nothing of it is copied: the log here begins anew after a copy of
the segment that goes before the leader's local log, with the epochs and producers that belong there. The store may be
slow, so this is a task of its own, and the other partitions of the leader go on.

Asked of the leader are where its local log begins, and the epoch of the record before: only a copy that agrees on it is
part of the leader's history.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tailrace.log.epochs import EpochEntry
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.replica.following import changes
from tailrace.replica.following.asking import Ask, find_end_of_epoch, list_offset
from tailrace.replica.following.cuts import Cuts
from tailrace.replica.partition import Partition

_log = events.logger("fetcher")

_EARLIEST_LOCAL = -4


async def start_after_copies(partition: Partition, ask: Ask, cuts: Cuts, *, is_current: Callable[[], bool]) -> str:
    """Why it could not, and then nothing has changed; empty if it did, or nothing is to be done any more."""
    try:
        await _start(partition, ask, cuts, is_current)
    except (KafkaError, StorageError, OSError) as error:
        return str(error)
    except Exception as error:
        _log.error("a follower cannot go on after what lies in the store", trace=True, partition=partition)
        cuts.broker.on_bug(error, partition)
        return repr(error)
    return ""


async def _start(partition: Partition, ask: Ask, cuts: Cuts, is_current: Callable[[], bool]) -> None:
    tier, node_id, leader_epoch = partition.tier, cuts.broker.node_id, int(partition.leader_epoch)
    if tier is None:
        raise KafkaError(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, "this broker has no remote storage")
    leader_start, epoch = await list_offset(partition, ask, node_id, leader_epoch, _EARLIEST_LOCAL)
    if epoch > 0:
        earlier, end_offset = await find_end_of_epoch(partition, ask, node_id, leader_epoch, epoch - 1)
        # Where the earlier one ended, `epoch` began.
        epoch = earlier if end_offset >= leader_start else epoch
    start = await tier.find_start(leader_start, epoch)
    log = partition.log
    before = log.log_end_offset
    if not is_current() or before >= leader_start:
        return
    # Before the log is cut: of a history that is longer than the batches nothing may be missing after a crash.
    await cuts.background.run(partial(log.epochs.store, [EpochEntry(*each) for each in start.epochs]))
    if not is_current() or partition.log is not log:
        return
    changes.restart_after(partition, start)
    _log.info(
        "a follower goes on after what lies in the store",
        partition=partition.topic_partition,
        leader=partition.leader_id,
        log_end=before,
        log_start=start.offset,
    )
