"""The leader-epoch history of a log against its batches, which know their epochs themselves.

Kafka's checkpoint has no checksum, and a wrong history is dangerous: by it replicas find where their logs part. So a
start looks at the first and the last batch of each epoch, and a history that does not fit them is made anew from all of
them. Most logs have one epoch: there only the beginning of the last segment is looked at, which is one small read.
"""

from tailrace.log.epochs import LeaderEpochs
from tailrace.log.files.damaged import DamagedError
from tailrace.log.files.segment import Segment
from tailrace.model.errors import KafkaError
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


def rebuild(epochs: LeaderEpochs, segments: list[Segment]) -> None:
    epochs.clear()
    for segment in segments:
        if segment.size_bytes == 0:
            continue  # Not even opened: of a thousand new logs most were never written to.
        for _, header in segment.headers():
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)


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
