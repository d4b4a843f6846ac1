"""The leader-epoch history of a log against its batches, which know their epochs themselves.

Kafka's checkpoint has no checksum, and a wrong history is dangerous: by it replicas find where their logs part. So a
start looks at the first and the last batch of each epoch, and a history that does not fit them is made anew from all of
them. Most logs have one epoch: there only the beginning of the last segment is looked at, which is one small read.

No checksum covers the epoch of a batch either. But epochs never fall along a log: where they do a batch is damaged, and
then the history is right, for one disk loses one thing at a time. The scrub finds that batch by the history.
"""

from collections.abc import Iterator

from tailrace.log.epochs import EpochEntry, LeaderEpochs
from tailrace.log.files.damaged import DamagedError
from tailrace.log.files.segment import Segment
from tailrace.model.errors import KafkaError
from tailrace.model.ids import NO_EPOCH
from tailrace.wire.records import HEADER_SIZE, BatchHeader, read_header


def find_problem(epochs: LeaderEpochs, segments: list[Segment], end_offset: int) -> str:
    """How the history below `end_offset`, where the segments end, differs from the batches; nothing if it fits."""
    starts = [entry.start_offset for entry in epochs.entries[1:]]
    for (epoch, start_offset), next_start in zip(epochs.entries, (*starts, end_offset), strict=True):
        offsets = (start_offset, next_start - 1) if starts else (segments[-1].base_offset,)
        for offset in offsets:
            batch = _batch_at(segments, offset)
            # Compaction may have taken all batches of an epoch, or those at its ends.
            if batch is not None and batch.base_offset < next_start and batch.leader_epoch not in (epoch, -1):
                return f"offset {batch.base_offset} is told to be of epoch {epoch}, and is of {batch.leader_epoch}"
    return ""


def read_history(segments: list[Segment], *, epoch_max: int) -> tuple[list[EpochEntry], bool]:
    """The history that the batches tell, and whether they contradict each other. Of those that do, a single batch above
    the ones behind it is passed over, else the one that falls. In no epoch after `epoch_max` has anybody led."""
    entries: list[EpochEntry] = []
    batches_in_last, is_contradictory = 0, False
    for epoch, offset in _epochs_of_batches(segments):
        latest = entries[-1].epoch if entries else NO_EPOCH
        if epoch > epoch_max:
            is_contradictory = True
        elif epoch < latest:
            is_contradictory = True
            if batches_in_last > 1 or (len(entries) > 1 and entries[-2].epoch > epoch):
                continue
            risen = entries.pop()
            if not entries:
                entries.append(EpochEntry(epoch, risen.start_offset))
            elif entries[-1].epoch < epoch:
                entries.append(EpochEntry(epoch, offset))
            batches_in_last = 2
        elif epoch > latest:
            entries.append(EpochEntry(epoch, offset))
            batches_in_last = 1
        else:
            batches_in_last += 1
    return entries, is_contradictory


def rebuild(epochs: LeaderEpochs, history: list[EpochEntry]) -> None:
    epochs.clear()
    for entry in history:
        epochs.assign(*entry)


def _epochs_of_batches(segments: list[Segment]) -> Iterator[EpochEntry]:
    for segment in segments:
        if segment.size_bytes:  # Else it is not even opened: of a thousand new logs most were never written to.
            for _, header in segment.headers():
                if header.leader_epoch > NO_EPOCH:
                    yield EpochEntry(header.leader_epoch, header.base_offset)


def _batch_at(segments: list[Segment], offset: int) -> BatchHeader | None:
    """The first that reaches to `offset`. None if there is none, or it cannot be read: then there is nothing to compare
    with."""
    segment = next((each for each in reversed(segments) if each.base_offset <= offset), segments[0])
    if segment.size_bytes == 0:
        return None
    try:
        # Most logs have one epoch, from their first batch on: that is found without an index.
        position = 0 if offset <= segment.base_offset else segment.position_of(offset)
        return None if position is None else read_header(segment.file.read(position, HEADER_SIZE))
    except (DamagedError, KafkaError):
        return None
    finally:
        segment.release()
