"""Opening a log: what the files of a folder amount to, after any kind of stop.

    stop        log end                             scanned
    clean       the recovery point (= log end)      the end of the last segment (`scrub.ending`), and the ends of
                                                    leader epochs if there are several (`scrub.epoch_history`)
    unclean     where the good batches end          from the segment that reaches up to the recovery point, or over it:
                                                    length, magic, CRC, order

What recovery finds, it does:
    a batch that is cut short, damaged or out of order   the log ends before it; later segments are dropped; reported
    a gap before a segment that was not synced           the same: the end of the segment before was lost
    the first segment begins behind the log start        an empty one is put before it; the scrub fills it
    an index missing or damaged                          rebuilt from the batches
    an index of aborted transactions not as it was       the same, by the producers at the beginning of its segment
    a producer snapshot missing or damaged               an older one, and the batches since
    leader-epoch-checkpoint missing, damaged or wrong    rebuilt from the batches
    .deleted .cleaned .tmp                               removed: work that was done or never finished
    .deleted before the first segment                    emptied, until the log start behind them is stored
    .swap                                                finished: a cleaned segment replaces its originals

What a killed process leaves is a batch that is cut short at the very end of the log. Everything else that is cut, a log
that ends below its recovery point, and one whose segments are gone, is damage (`Damage`): records are missing that were
there. Whoever opens the log is told before the first such cut, since the next start will not find a trace of it.

Nothing below the recovery point is cut: it was synced. Files are read in chunks of 1 MB, never whole. A gap proves a
loss because neither an append nor a compaction leaves one between segments. Kafka's compaction does, so the part of a
log that its cleaner has been over is not judged by gaps.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Required, TypedDict

from tailrace.log.checkpoints import ProducerSnapshots, read_topic_id, write_topic_id
from tailrace.log.compaction.swap import finish_swaps
from tailrace.log.epochs import LeaderEpochs
from tailrace.log.files.ledger import AbortedLedger
from tailrace.log.files.replay import load_producers, note_producer, rebuild_aborted, write_snapshot
from tailrace.log.files.segment import (
    ABORTED_SUFFIX,
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
)
from tailrace.log.files.segments import empty_deleted
from tailrace.log.files.tail import find_gap, find_problem, has_batch_behind, walk_batches, with_following
from tailrace.log.producers import ProducerStates
from tailrace.log.scrub import epoch_history
from tailrace.log.scrub.ending import find_lost, note_lost, read_end
from tailrace.model import events
from tailrace.model.config import TopicConfig
from tailrace.model.errors import StorageError
from tailrace.model.ids import ZERO_UUID, TopicPartition, Uuid, uuid_text
from tailrace.model.ports import Bytes, Clock, Disk
from tailrace.model.settings import INT_MAX
from tailrace.wire.records import BatchHeader

_NAME_DIGITS = 20
_NOWHERE = 1 << 62
_TEMPORARY_SUFFIX = ".tmp"
_DELETED_LOG = LOG_SUFFIX + DELETED_SUFFIX
_IN_USE_SUFFIXES = (LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX)
_UNSETTLED_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, _TEMPORARY_SUFFIX)

log = events.logger("log.recovery")


class Damage(NamedTuple):
    """Records are missing that the log had, or may have had."""

    cause: str
    lost_until: int  # Offsets from the log end up to here, at least.


class Recovery(NamedTuple):
    """What an unclean stop has cost one log."""

    scanned_bytes: int
    cut_bytes: int
    duration_ms: float


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """All that a log is made of."""

    topic_partition: TopicPartition
    topic_id: Uuid
    segments: list[Segment]  # at least one, in order
    deleted: list[Segment]  # expired, and the log start behind them is not stored yet
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerStates
    snapshots: ProducerSnapshots
    ledger: AbortedLedger
    recovery: Recovery | None  # None if nothing had to be scanned
    damage: Damage | None
    gapless_from: int  # from there on each segment ends where the next begins
    is_stored: bool  # as a clean close left it, or made just now: then a start that does not find it makes it again


class KnownOfLog(TypedDict, total=False):
    """Which log it is, and what is known of it outside of its folder: by the metadata, and by the last run."""

    topic_partition: Required[TopicPartition]
    topic_id: Uuid | None
    leader_epoch: int  # that of the partition now: nobody can have written in a later one
    recovery_point: int
    log_start_offset: int
    is_start_proved: bool
    cleaned_offset: int
    is_clean: bool
    log_end_hint: int | None
    before_damage_is_cut: Callable[[], None] | None


class LogLoader:
    """Opens one log. Every method raises OSError or StorageError."""

    def __init__(self, disk: Disk, clock: Clock, folder: str, config: TopicConfig, known: KnownOfLog) -> None:
        self.disk = disk
        self.clock = clock
        self.folder = folder
        self.config = config
        self.topic_partition = known["topic_partition"]
        self.epochs = LeaderEpochs(disk, folder)
        self.producers = ProducerStates()
        self.snapshots = ProducerSnapshots(disk, folder)
        self._log_start_offset = 0
        self.ledger = AbortedLedger(disk, folder)
        self._aborted_problems: dict[int, str] = {}  # by base offset, of indexes that are there
        self._deleted: set[int] = set()  # of segments that were about to be removed
        self._proving: list[Segment] = []  # those of them whose names prove that they have expired
        self._lost: dict[int, bool] = {}  # of those whose indexes alone are left, and whether that of aborted ones is
        self.scanned_bytes = 0
        self.cut_bytes = 0
        self.damage: Damage | None = None
        self._known = known
        self._is_compacted = "compact" in config.cleanup_policy
        self._leader_epoch = known.get("leader_epoch", INT_MAX)

    def load(self) -> LoadedLog:
        known = self._known
        recovery_point, log_start_offset = known.get("recovery_point", 0), known.get("log_start_offset", 0)
        is_clean, cleaned_offset = known.get("is_clean", False), known.get("cleaned_offset", 0)
        topic_id = self._settle_topic_id(known.get("topic_id"))
        names = self._settle_files(self.disk.list(self.folder))
        segments = self._find_segments(names)
        is_new = not segments
        started_ms = self.clock.monotonic_ms()
        self.snapshots.offsets = [_number(name) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
        self.ledger.load()
        log_end_offset, synced_end = log_start_offset, recovery_point
        known_start = log_start_offset if known.get("is_start_proved", False) else _NOWHERE
        if segments and any(base_offset <= known_start for base_offset in self._deleted):
            known_start = max(known_start, segments[0].base_offset)  # They have expired, and the stop came before that.
        if segments:
            if segments[0].base_offset > known_start:
                self._note_damage(f"it starts at {known_start}, its first segment at {segments[0].base_offset}", 0)
            self._log_start_offset = log_start_offset = max(log_start_offset, segments[0].base_offset)
            if is_clean:
                log_end_offset, is_clean = self._trust(segments, known.get("log_end_hint"))
            if not is_clean:
                log_end_offset = self._verify(segments, recovery_point, max(recovery_point, cleaned_offset))
            self._restore_lost(segments, log_start_offset)
            self.snapshots.prune({segment.base_offset for segment in segments}, end_offset=log_end_offset)
            if log_end_offset < log_start_offset:
                self._note_damage("all of it lies before the log start offset", log_start_offset)
                self._report("dropped all segments: they end before the log start offset", bytes=_size(segments))
                self.cut_bytes += _size(segments)
                self._remove(segments)
        if log_end_offset < synced_end:
            self._note_damage(f"it ends at offset {log_end_offset} and was synced up to {synced_end}", synced_end)
        if not segments:
            segments.append(self._start_anew(log_start_offset))
            log_end_offset = recovery_point = log_start_offset
        elif segments[0].base_offset > known_start:
            # Segments go only after the log start behind them was stored: those before were lost. A log without them
            # would start later, and once it led the others would give up their records too.
            segments.insert(0, self._create(known_start))
            note_lost(segments[0], segments[1].base_offset)
            log_start_offset = known_start
        self.epochs.truncate_from_end(log_end_offset)
        if not self.config.remote_storage_enable:
            self.epochs.truncate_from_start(log_start_offset)
        return LoadedLog(
            topic_partition=self.topic_partition,
            topic_id=topic_id,
            segments=segments,
            deleted=self._proving,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=min(recovery_point, log_end_offset),
            epochs=self.epochs,
            producers=self.producers,
            snapshots=self.snapshots,
            ledger=self.ledger,
            recovery=None if is_new or is_clean else self._sum_up(started_ms),
            damage=self.damage,
            gapless_from=cleaned_offset,
            is_stored=is_new or (is_clean and recovery_point == log_end_offset),
        )

    def _note_damage(self, cause: str, lost_until: int) -> None:
        """Called before anything is cut because of it: the next start would find no trace of the damage. The first
        cause is what the others follow from."""
        if self.damage is None:
            self.damage = Damage(cause, lost_until)
            tell = self._known.get("before_damage_is_cut")
            if tell is not None:
                tell()
        elif lost_until > self.damage.lost_until:
            self.damage = self.damage._replace(lost_until=lost_until)

    def _sum_up(self, started_ms: float) -> Recovery:
        return Recovery(self.scanned_bytes, self.cut_bytes, self.clock.monotonic_ms() - started_ms)

    def _settle_topic_id(self, topic_id: Uuid | None) -> Uuid:
        """The id in partition.metadata, which is written where it is missing; the folder is made if it must be."""
        stored = None
        if self.disk.is_folder(self.folder):
            stored = read_topic_id(self.disk, self.folder, topic_id)
        else:
            self.disk.make_folder(self.folder)
        if stored is None and topic_id is not None:
            write_topic_id(self.disk, self.folder, topic_id)
        elif stored is not None and topic_id is not None and stored != topic_id:
            raise StorageError(
                f"{self.folder} holds the topic with id {uuid_text(stored)}, not {uuid_text(topic_id)}: a topic of "
                "this name was deleted and made again. Remove the folder, or start with the old cluster metadata."
            )
        return topic_id or stored or ZERO_UUID

    def _start_anew(self, offset: int) -> Segment:
        self.epochs.clear()
        self.producers.clear()
        self.snapshots.clear()
        return self._create(offset)

    def _create(self, offset: int) -> Segment:
        return Segment.create(self.disk, self.folder, offset, config=self.config, created_ms=self.clock.wall_ms())

    # Files

    def _settle_files(self, names: list[str]) -> list[str]:
        """Finishes or undoes what a stop has interrupted; returns the names that are left."""
        if not any(name.endswith(_UNSETTLED_SUFFIXES) for name in names):
            return names
        self._deleted = {_number(name) for name in names if name.endswith(_DELETED_LOG)}
        first_base = min([_number(name) for name in names if name.endswith(_IN_USE_SUFFIXES)], default=0)
        if self._known.get("is_start_proved", False) and self._known.get("log_start_offset", 0) < first_base:
            self._proving = [self._deleted_segment(each) for each in sorted(self._deleted) if each < first_base]
        finish_swaps(self.disk, self.folder, {f"{each.base_offset:020d}{_DELETED_LOG}" for each in self._proving})
        empty_deleted(self.disk, self._proving)
        for name in self.disk.list(self.folder):
            if name.endswith(_TEMPORARY_SUFFIX):
                self.disk.remove(f"{self.folder}/{name}")
        return self.disk.list(self.folder)

    def _deleted_segment(self, base_offset: int) -> Segment:
        now_ms = self.clock.wall_ms()
        return Segment(
            self.disk, self.folder, base_offset, config=self.config, created_ms=now_ms, suffix=DELETED_SUFFIX
        )

    def _find_segments(self, names: list[str]) -> list[Segment]:
        present = set(names)
        segments: list[Segment] = []
        last_base = max([_number(name) for name in names if name.endswith(LOG_SUFFIX)], default=-1)
        for name in names:
            base_offset = _number(name)
            if base_offset < 0:
                continue
            path = f"{self.folder}/{name}"
            if name.endswith(LOG_SUFFIX):
                segment = Segment(
                    self.disk,
                    self.folder,
                    base_offset,
                    config=self.config,
                    created_ms=self.clock.wall_ms(),
                    size_bytes=self.disk.size(path),
                )
                if f"{base_offset:020d}{ABORTED_SUFFIX}" in present:
                    self._aborted_problems[base_offset] = segment.aborted.attach()
                segments.append(segment)
            elif (
                name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX))
                and f"{base_offset:020d}{LOG_SUFFIX}" not in present
            ):
                if segments and base_offset < last_base and base_offset not in self._deleted:
                    self._lost[base_offset] = f"{base_offset:020d}{ABORTED_SUFFIX}" in present
                    continue
                log.warning("removed an index without a log", partition=self.topic_partition, file=path)
                self.disk.remove(path)
        return segments

    def _restore_lost(self, segments: list[Segment], log_start_offset: int) -> None:
        """Indexes without their log amid others: the file was lost. An empty one keeps its place for the repair."""
        for base_offset in [each for each in self._lost if each < segments[-1].base_offset]:
            segments.insert(0, self._create(base_offset))
            if self._lost[base_offset]:
                segments[0].aborted.attach()
        segments.sort(key=lambda each: each.base_offset)
        for lost in find_lost(self.disk, segments, log_start_offset):
            self._note_damage(f"{lost.path(LOG_SUFFIX)} has lost its content", 0)

    def _check_aborted(self, segments: list[Segment]) -> None:
        """Checks segments that are not scanned. Without an index of what was aborted, aborted records would be read."""
        for number, segment in enumerate(segments):
            problem = self._aborted_problems.get(segment.base_offset) or self.ledger.find_problem(segment)
            if problem:
                self._report("an index of aborted transactions is rebuilt", cause=problem)
                rebuild_aborted(segments, number, self.snapshots, now_ms=self.clock.wall_ms())

    def _remove(self, segments: list[Segment]) -> None:
        # From the end, so that what is left after a crash is a prefix.
        while segments:
            segments.pop().remove()
        # For good: a power loss that brought them back would let them follow on what is written from now on.
        self.disk.sync_folder(self.folder)

    # A clean stop

    def _trust(self, segments: list[Segment], log_end_hint: int | None) -> tuple[int, bool]:
        """Where the log ends, and True; False if its end is not as it was left."""
        log_end_offset, problem = read_end(self.disk, segments[-1], log_end_hint)
        if problem:
            self._report("a clean stop is not trusted", file=segments[-1].path(LOG_SUFFIX), cause=problem)
            return log_end_offset, False
        self._load_epochs(segments, log_end_offset)
        self._load_producers(segments, log_end_offset)
        self._check_aborted(segments)
        return log_end_offset, True

    # An unclean stop

    def _verify(self, segments: list[Segment], recovery_point: int, gapless_from: int) -> int:
        """Leaves only good segments in the list and returns where the log ends."""
        bases = [segment.base_offset for segment in segments]
        first = max(0, bisect_right(bases, recovery_point) - 1)
        if first and bases[first] == recovery_point:
            # The one before was closed after the last sync: a power loss may have taken its indexes. Without that of
            # aborted transactions their records would be read.
            first -= 1
        self._load_epochs(segments[:first], segments[first].base_offset)
        next_offset = segments[first].base_offset
        # Later ones may be of a history that was cut off: a power loss brings back what was removed and not synced.
        for offset in [offset for offset in self.snapshots.offsets if offset > next_offset]:
            self.snapshots.remove(offset)
        self._load_producers(segments[:first], next_offset)
        self._check_aborted(segments[:first])
        for number in range(first, len(segments)):
            segment = segments[number]
            if number > first and next_offset != segment.base_offset:
                if segment.base_offset < next_offset or segment.base_offset > gapless_from:
                    self._drop_from(segments, number, f"it does not follow on offset {next_offset}")
                    break
                next_offset = segment.base_offset
            if number > first:
                # It was not synced yet: its name may be there and its content not.
                write_snapshot(self.producers, self.snapshots, next_offset)
            following_offset = segments[number + 1].base_offset if segment is not segments[-1] else None
            next_offset, problem = self._scan(segment, next_offset, following_offset)
            if problem:
                self._drop_from(segments, number + 1, "an earlier segment was cut")
                break
        for segment in segments[first:-1]:
            segment.seal()
        return next_offset

    def _scan(self, segment: Segment, next_offset: int, following_offset: int | None) -> tuple[int, str]:
        """Checks every batch and notes it in indexes, epochs and producers. Cuts the segment at the first problem;
        returns the next offset and the problem, if any. The next segment begins with `following_offset`."""
        segment.reset_indexes()
        segment.aborted.truncate(0)
        end = segment.size_bytes
        self.scanned_bytes += end
        good_end = 0
        problem = ""
        for (position, header, batch), behind in with_following(walk_batches(segment), following_offset):
            problem = find_problem(
                segment, header, batch, next_offset, epoch=self.epochs.latest, epoch_max=self._leader_epoch
            )
            if header is None or problem:
                break
            if not self._is_compacted and header.base_offset != next_offset:
                problem = find_gap(header, next_offset, behind)
                if problem:
                    break
            self._note(segment, position, header, batch)
            next_offset = header.next_offset
            self.producers.note_written(header.size_bytes, next_offset)
            good_end = position + header.size_bytes
        is_torn = not problem and good_end < end
        if is_torn:
            problem = "it ends in the middle of a batch"
        if problem:
            if not (is_torn and following_offset is None) or has_batch_behind(segment, good_end, next_offset):
                self._note_damage(f"{segment.path(LOG_SUFFIX)} at {good_end}: {problem}", next_offset + 1)
            self._report(
                "cut a torn or damaged tail",
                file=segment.path(LOG_SUFFIX),
                position=good_end,
                bytes=end - good_end,
                cause=problem,
                log_end_offset=next_offset,
            )
            self.cut_bytes += end - good_end
            segment.cut(good_end)
            # At once: a roll would hide the cut from the next sync, and a power loss bring the tail back behind it.
            segment.sync()
        return next_offset, problem

    def _note(self, segment: Segment, position: int, header: BatchHeader, batch: Bytes) -> None:
        segment.note_batch(position, header.size_bytes, header.last_offset, header.max_timestamp)
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0 or header.is_control:
            note_producer(self.producers, segment, header, batch)

    def _drop_from(self, segments: list[Segment], number: int, cause: str) -> None:
        dropped = segments[number:]
        if not dropped:
            return
        size = _size(dropped)
        self.cut_bytes += size
        # An empty segment holds nothing to lose: it was made by a roll right before the stop.
        if size:
            self._note_damage(f"{dropped[0].path(LOG_SUFFIX)}: {cause}", dropped[-1].base_offset + 1)
            self._report("dropped segments after the end of the log", segments=len(dropped), bytes=size, cause=cause)
        self._remove(dropped)
        del segments[number:]

    # Epochs and producers

    def _load_epochs(self, segments: list[Segment], end_offset: int) -> None:
        """Those below `end_offset`, where the given segments end."""
        is_loaded = self.epochs.load()
        self.epochs.truncate_from_end(end_offset)
        # The history is cut when the log start moves. A start that was not stored may be back at an earlier offset.
        if not segments or self._log_start_offset >= end_offset:
            return
        if not is_loaded or self.epochs.epoch_for(self._log_start_offset) < 0:
            history, _ = epoch_history.read_history(segments, epoch_max=self._leader_epoch)
            epoch_history.rebuild(self.epochs, history)
        elif problem := epoch_history.find_problem(self.epochs, segments, end_offset):
            history, is_contradictory = epoch_history.read_history(segments, epoch_max=self._leader_epoch)
            if not is_contradictory:
                self._report("the history of leader epochs is rebuilt", cause=problem)
                older = [each for each in self.epochs.entries if each.start_offset < segments[0].base_offset]
                epoch_history.rebuild(self.epochs, [*older, *history] if self.config.remote_storage_enable else history)

    def _load_producers(self, segments: list[Segment], end_offset: int) -> None:
        load_producers(self.producers, self.snapshots, segments, end_offset=end_offset, now_ms=self.clock.wall_ms())

    def _report(self, sentence: str, **facts: object) -> None:
        log.warning(sentence, partition=self.topic_partition, **facts)


def _size(segments: list[Segment]) -> int:
    return sum(segment.size_bytes for segment in segments)


def _number(name: str) -> int:
    """The offset that a file is named after; -1 for other files."""
    digits = name[:_NAME_DIGITS]
    return int(digits) if len(digits) == _NAME_DIGITS and digits.isdecimal() else -1
