"""What of a data folder can be damaged, and how: a bit flips, a file is cut short or lost, a folder is lost.

A wound is picked first and inflicted later, or never: whoever asks for it judges whether it may be. It is hidden where
the node's own files cannot tell of it after a stop: its log then ends at a good batch, or in the middle of one as a
torn write would, and neither its recovery point nor its stored high watermark reach beyond that end. After a clean stop
nothing is hidden, because the recovery point is the log end then.

Knows the names and formats of files, and nothing of brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from tailrace.broker.quorum.state_file import FILE_NAME as QUORUM_STATE
from tailrace.log import checkpoints
from tailrace.log.files.names import parse_folder_name
from tailrace.log.files.segment import LOG_SUFFIX
from tailrace.log.identity import LOCK_FILE
from tailrace.model.errors import KafkaError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC, TopicPartition
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom
from tailrace.wire.records import BatchHeader, iterate_headers

# Where a batch has its length, leader epoch and magic, behind the base offset. The CRC covers none of these.
_LENGTH_AT, _LEADER_EPOCH_AT, _MAGIC_AT = 8, 12, 16
_NOWHERE = 1 << 62
_BATCH_KINDS = ("rot", "rot", "rot", "rot", "rot", "header rot", "short", "short", "edge", "edge", "lost")
_FILE_KINDS = ("rot", "short", "lost", "lost")


class Wound(NamedTuple):
    text: str
    inflict: Callable[[], None]
    is_hidden: bool = False


class _Segment(NamedTuple):
    path: str
    base_offset: int
    batches: list[tuple[int, BatchHeader]]  # with their positions


class Wounds:
    """What can be damaged on the disk of one node. Nothing is picked where there is nothing to damage."""

    def __init__(self, disk: SimDisk, folders: Sequence[str], random: SimRandom) -> None:
        self._disk = disk
        self._folders = folders
        self._random = random

    # ---- partitions

    def of_log(self, partition: TopicPartition) -> Wound | None:
        """Any of its segments, the active one most of all."""
        segments = self._segments_of(partition)
        if not segments:
            return None
        segment = segments[-1] if self._random.random() < 0.6 else self._random.choice(segments)
        return self._of_segment(segment, self._random.choice(_BATCH_KINDS), self._known_end(partition), segments)

    def of_closed_segment(self, partition: TopicPartition, below_offset: int) -> Wound | None:
        """One that ends below an offset, while a process uses it."""
        segments = self._segments_of(partition)
        closed = [one for one, after in pairwise(segments) if after.base_offset <= below_offset]
        if not closed:
            return None
        kind = self._random.choice(("rot", "rot", "rot", "header rot", "edge", "lost"))
        return self._of_segment(self._random.choice(closed), kind, _NOWHERE, segments)

    def of_side_file(self, partition: TopicPartition) -> Wound | None:
        """Indexes, snapshots of producers, the history of epochs, the topic's id."""
        names = [name for name in self._names_of(partition) if not name.endswith(LOG_SUFFIX)]
        return self._of_file(f"{self._folder_of(partition)}/{self._random.choice(names)}") if names else None

    def of_partition_folder(self, partition: TopicPartition) -> Wound | None:
        folder = self._folder_of(partition)
        return None if folder is None else Wound(f"loses {folder}", partial(self._disk.lose, folder))

    def of_all_partitions(self) -> Wound | None:
        lost = [
            f"{folder}/{name}"
            for folder in self._folders
            for name in self._disk.list(folder)
            if parse_folder_name(name) is not None
        ]
        return Wound(f"loses {' '.join(lost)}", partial(self._lose_all, lost)) if lost else None

    def _lose_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._disk.lose(path)

    # ---- the data folder itself

    def of_small_file(self) -> Wound | None:
        """Checkpoints and marks."""
        paths = [f"{folder}/{name}" for folder in self._folders for name in self._disk.list(folder)]
        small = [
            path
            for path in paths
            if not self._disk.is_folder(path) and not path.endswith((LOCK_FILE, checkpoints.META_PROPERTIES))
        ]
        return self._of_file(self._random.choice(small)) if small else None

    def of_identity(self) -> Wound:
        return self._lose(f"{self._random.choice(self._folders)}/{checkpoints.META_PROPERTIES}")

    # ---- metadata

    def of_metadata(self) -> Wound | None:
        """Its log, its snapshots, the vote, or all of it. Nothing is hidden: up to where it was synced is stored."""
        folder = f"{self._folders[0]}/{CLUSTER_METADATA_TOPIC}-0"
        names = self._disk.list(folder) if self._disk.is_folder(folder) else []
        chance = self._random.random()
        if chance < 0.2:
            return self._lose(folder) if names else None
        if chance < 0.3:
            return self._lose(f"{folder}/{QUORUM_STATE}") if QUORUM_STATE in names else None
        files = [name for name in names if name.endswith((LOG_SUFFIX, ".checkpoint"))]
        whole = [segment for name in files if (segment := self._read_segment(folder, name)).batches]
        if not whole:
            return None
        segment = self._random.choice(whole)
        return self._of_segment(segment, self._random.choice(_BATCH_KINDS), _NOWHERE, whole)

    # ---- how

    def _of_segment(self, segment: _Segment, kind: str, known_end: int, segments: list[_Segment]) -> Wound:
        match kind:
            case "rot":
                return self._rot(segment)
            case "header rot":
                return self._header_rot(segment, known_end)
            case "lost":
                is_last = segment is segments[-1]
                return self._lose(segment.path)._replace(is_hidden=is_last and segment.base_offset >= known_end)
        index = self._random.randrange(len(segment.batches))
        position, header = segment.batches[index]
        size = position if kind == "edge" else position + 1 + self._random.randrange(header.size_bytes - 1)
        text = f"cuts {segment.path} to {size} bytes: offset {header.base_offset} is the first that is gone"
        is_hidden = segment is segments[-1] and header.base_offset >= known_end
        return Wound(text, partial(self._disk.cut, segment.path, size), is_hidden)

    def _rot(self, segment: _Segment) -> Wound:
        """In what the CRC covers, or the CRC itself."""
        position, header = self._random.choice(segment.batches)
        at = _MAGIC_AT + self._random.randrange(header.size_bytes - _MAGIC_AT)
        return self._flip(segment, header, position + at)

    def _header_rot(self, segment: _Segment, known_end: int) -> Wound:
        """In what it does not cover. A batch whose length is wrong may look like one that was never written in full.
        An offset that rises is not promised to be noticed before it is read, unless recovery looks at it: where that
        does not reach, another field is hit."""
        position, header = self._random.choice(segment.batches)
        at = self._random.randrange(_MAGIC_AT)
        if at < _LENGTH_AT and header.base_offset < known_end:
            at += _LENGTH_AT
        is_length = _LENGTH_AT <= at < _LEADER_EPOCH_AT
        wound = self._flip(segment, header, position + at)
        return wound._replace(is_hidden=is_length and header.base_offset >= known_end)

    def _flip(self, segment: _Segment, header: BatchHeader, at: int) -> Wound:
        bit = self._random.randrange(8)
        text = f"flips bit {bit} of byte {at} of {segment.path}, in the batch of offset {header.base_offset}"
        return Wound(text, partial(self._disk.flip, segment.path, at, bit))

    def _lose(self, path: str) -> Wound:
        return Wound(f"loses {path}", partial(self._disk.lose, path))

    def _of_file(self, path: str) -> Wound | None:
        size = self._disk.size(path)
        kind = self._random.choice(_FILE_KINDS) if size else "lost"
        if kind == "lost":
            return self._lose(path)
        at, bit = self._random.randrange(size), self._random.randrange(8)
        if kind == "short":
            return Wound(f"cuts {path} to {at} bytes", partial(self._disk.cut, path, at))
        return Wound(f"flips bit {bit} of byte {at} of {path}", partial(self._disk.flip, path, at, bit))

    # ---- what there is

    def _folder_of(self, partition: TopicPartition) -> str | None:
        folders = [f"{folder}/{partition}" for folder in self._folders]
        return next((folder for folder in folders if self._disk.is_folder(folder)), None)

    def _names_of(self, partition: TopicPartition) -> list[str]:
        folder = self._folder_of(partition)
        return [] if folder is None else self._disk.list(folder)

    def _segments_of(self, partition: TopicPartition) -> list[_Segment]:
        """Those with batches, in order."""
        folder = self._folder_of(partition)
        names = [name for name in self._names_of(partition) if name.endswith(LOG_SUFFIX)]
        segments = [self._read_segment(folder, name) for name in names] if folder is not None else []
        return [segment for segment in segments if segment.batches]

    def _read_segment(self, folder: str, name: str) -> _Segment:
        segment = _Segment(f"{folder}/{name}", _number(name), [])
        with suppress(KafkaError):  # A tail that a stop has torn.
            for batch in iterate_headers(self._disk.read(segment.path), allow_partial=True):
                segment.batches.append(batch)
        return segment

    def _known_end(self, partition: TopicPartition) -> int:
        """Below it nothing can be missing unseen."""
        stored = [
            checkpoints.read_offsets(self._disk, folder, name).get(partition, 0)
            for folder in self._folders
            for name in (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS)
        ]
        return max(stored)


def _number(name: str) -> int:
    return int(name.partition(".")[0].partition("-")[0])
