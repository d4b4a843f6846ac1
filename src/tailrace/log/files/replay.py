"""What the batches of segments tell of producers: who wrote what last, and which transactions were aborted."""

from tailrace.log.checkpoints import ProducerSnapshots
from tailrace.log.files.aborted import AbortedTransaction
from tailrace.log.files.segment import Segment
from tailrace.log.producers import ProducerStates
from tailrace.model import events
from tailrace.model.errors import StorageError
from tailrace.model.ports import Bytes
from tailrace.wire.markers import is_barrier, read_marker
from tailrace.wire.records import BatchHeader

log = events.logger("log.recovery")


def load_producers(
    producers: ProducerStates, snapshots: ProducerSnapshots, segments: list[Segment], *, end_offset: int, now_ms: int
) -> None:
    """The state at `end_offset`: the newest good snapshot below it, in memory or in a file, and the batches since."""
    start_offset = kept_offset = producers.forget_after(end_offset)
    for offset in snapshots.newest_first(end_offset):
        if offset <= kept_offset:
            break
        try:
            producers.load(snapshots.read(offset), now_ms=now_ms)
            start_offset = offset
            break
        except (StorageError, OSError) as error:
            log.warning("a producer snapshot is passed over", file=snapshots.path(offset), cause=error)
            snapshots.remove(offset)
    if start_offset == kept_offset:
        producers.load_kept(now_ms=now_ms)
    for number, segment in enumerate(segments):
        is_before = number + 1 < len(segments) and segments[number + 1].base_offset <= start_offset
        if is_before or segment.base_offset >= end_offset or start_offset >= end_offset:
            continue
        position = segment.position_of(start_offset) if start_offset > segment.base_offset else 0
        for at, header in segment.headers(position) if position is not None else ():
            if header.base_offset >= end_offset:
                break
            if (header.producer_id >= 0 or header.is_control) and header.base_offset >= start_offset:
                batch = segment.file.read(at, header.size_bytes) if header.is_control else b""
                if is_barrier(header, batch):
                    producers.forget_before_barrier()
                producers.update(header, marker=read_marker(header, batch))
    if end_offset not in snapshots.offsets and any(segment.size_bytes for segment in segments):
        write_snapshot(producers, snapshots, end_offset)


def note_producer(
    producers: ProducerStates, segment: Segment, header: BatchHeader, batch: Bytes, base_offset: int | None = None
) -> None:
    """A batch of a producer, or a barrier, was found in `segment` or is written to it. Of control batches alone the
    records are looked at."""
    if not header.is_control:
        producers.update(header, base_offset)
        return
    if is_barrier(header, batch):
        producers.forget_before_barrier()
        return
    ended = producers.update(header, base_offset, marker=read_marker(header, batch))
    if ended is not None and ended.is_aborted:
        # Whatever is aborted later is open now, or begins after this marker.
        first_open = producers.first_open_offset
        stable = ended.last_offset + 1 if first_open is None else min(first_open, ended.last_offset + 1)
        segment.aborted.add(AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, stable))


def rebuild_aborted(segments: list[Segment], number: int, snapshots: ProducerSnapshots, *, now_ms: int) -> None:
    """Makes the index of aborted transactions of a closed segment anew, by the producers at its beginning and its own
    batches. Cuts nothing: what is damaged is the scrub's matter, and what it hides cannot be known. OSError."""
    segment, producers = segments[number], ProducerStates()
    load_producers(producers, snapshots, segments[:number], end_offset=segment.base_offset, now_ms=now_ms)
    segment.aborted.truncate(0)
    try:
        for at, header in segment.headers():
            if header.producer_id >= 0 or header.is_control:
                batch = segment.file.read(at, header.size_bytes) if header.is_control else b""
                note_producer(producers, segment, header, batch)
    except StorageError as error:
        log.warning("an index of aborted transactions ends early", file=segment.aborted.path, cause=error)
    segment.aborted.write_out(sync=True)
    segment.release()


def write_snapshot(producers: ProducerStates, snapshots: ProducerSnapshots, offset: int) -> None:
    """Segments may be deleted, and what they told of producers then stands in snapshots alone."""
    try:
        snapshots.write(offset, producers.snapshot())
    except OSError as error:
        log.warning("a producer snapshot is not written", file=snapshots.path(offset), cause=error)
