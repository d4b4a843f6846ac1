"""Kafka's small text files: what a data folder knows about its logs.

    checkpoint          0 \\n count \\n lines of words          recovery-point-, log-start-, replication-,
                                                              cleaner-offset-checkpoint; leader-epoch-checkpoint
    partition.metadata  version: 0 \\n topic_id: <base64url>
    meta.properties     key=value lines, version=1

Each is replaced as a whole, so a reader sees the old or the new content. Each can be rebuilt or done without, so a
damaged one is reported and read as missing; meta.properties alone is refused, because it says whose data this is.
"""

from bisect import insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tailrace.model import events
from tailrace.model.errors import StorageError
from tailrace.model.ids import PartitionIndex, TopicPartition, Uuid, parse_uuid, uuid_text
from tailrace.model.ports import Disk
from tailrace.wire.checksum import crc32c

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"

_META_KEYS = {"cluster.id", "node.id", "directory.id"}
# Of the cluster's id, which a node that is alone can compare with nothing else. Ours: Kafka's nodes read over it, and a
# file of theirs has none.
_META_SUM = "tailrace.cluster.id.sum"
_OTHER_META_KEYS = {"version", "broker.id", _META_SUM}  # The broker.id is of Kafka's older versions.
_VERSION = "0"

log = events.logger("log.checkpoints")


def format_entries(entries: Iterable[Sequence[object]]) -> bytes:
    lines = [" ".join(map(str, entry)) for entry in entries]
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode("utf-8")


def parse_entries(data: bytes, *, columns: int) -> list[list[int]]:
    """Lines of numbers. StorageError if the file is not what was written."""
    return [[_parse_number(word) for word in words] for words in _split_entries(data, columns)]


def read_offsets(disk: Disk, folder: str, name: str) -> dict[TopicPartition, int]:
    """One of the offset checkpoints; empty if it is missing or damaged."""
    return find_offsets(disk, folder, name) or {}


def find_offsets(disk: Disk, folder: str, name: str) -> dict[TopicPartition, int] | None:
    """None if it is missing or damaged."""
    try:
        data = disk.read(f"{folder}/{name}")
        return {
            TopicPartition(topic, PartitionIndex(_parse_number(partition))): _parse_number(offset)
            for topic, partition, offset in _split_entries(data, 3)
        }
    except FileNotFoundError:
        return None
    except StorageError as error:
        log.warning("a damaged checkpoint is read as missing and will be rebuilt", file=f"{folder}/{name}", cause=error)
        return None


def write_offsets(
    disk: Disk, folder: str, name: str, offsets: Mapping[TopicPartition, int], *, sync: bool = True
) -> None:
    entries = [(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    disk.replace(f"{folder}/{name}", format_entries(entries), sync=sync)


class OffsetCheckpoint:
    """One of the offset checkpoints, written by work in Background that may come late, or while other such work goes
    on: the content asked for last is what stays. An old recovery point could be ahead of a log that was cut."""

    def __init__(self, disk: Disk, folder: str, name: str) -> None:
        self._disk = disk
        self._folder = folder
        self._name = name
        self._asked: tuple[int, Mapping[TopicPartition, int]] = 0, {}  # version and content
        found = find_offsets(disk, folder, name)
        self.was_found = found is not None  # at the start, whole
        self._stored: Mapping[TopicPartition, int] = found or {}

    def read(self) -> dict[TopicPartition, int]:
        """As it was last stored."""
        return dict(self._stored)

    def highest(self, topic_partition: TopicPartition) -> int:
        """What the file may say of a log at most, now or once all work is done."""
        return max(self._asked[1].get(topic_partition, 0), self._stored.get(topic_partition, 0))

    def begin_write(self, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
        """The work stores `offsets`, which must not change any more, or what was asked for since. It raises OSError."""
        self._asked = self._asked[0] + 1, offsets
        return self._store

    def _store(self) -> None:
        done = 0
        while (asked := self._asked)[0] != done:
            done, offsets = asked
            try:
                write_offsets(self._disk, self._folder, self._name, offsets)
            except OSError:
                # It may hold the old or the new.
                either = offsets.keys() | self._stored.keys()
                self._stored = {each: max(offsets.get(each, 0), self._stored.get(each, 0)) for each in either}
                raise
            self._stored = offsets


def read_topic_id(disk: Disk, folder: str, expected: Uuid | None = None) -> Uuid | None:
    """From partition.metadata; None if it is missing or damaged. Ids of two topics differ in nearly all characters: one
    that differs from the `expected` id in a single one is that id with a flipped bit."""
    try:
        properties = _parse_properties(disk.read(f"{folder}/{PARTITION_METADATA}"), ":")
        text = properties["topic_id"]
        if expected is not None and sum(map(str.__ne__, text, uuid_text(expected))) == 1:
            raise StorageError(f"{text} is {uuid_text(expected)} but for one character")
        return parse_uuid(text)
    except FileNotFoundError:
        return None
    except (StorageError, KeyError, ValueError) as error:
        log.warning("partition.metadata is damaged and read as missing", folder=folder, cause=error)
        return None


def write_topic_id(disk: Disk, folder: str, topic_id: Uuid) -> None:
    text = f"version: 0\ntopic_id: {uuid_text(topic_id)}"
    disk.replace(f"{folder}/{PARTITION_METADATA}", text.encode("ascii"), sync=False)


def read_meta_properties(disk: Disk, folder: str) -> dict[str, str] | None:
    """None if the folder is new. StorageError if the file cannot be what was written."""
    try:
        properties = _parse_properties(disk.read(f"{folder}/{META_PROPERTIES}"), "=")
        missing, strange = _META_KEYS - properties.keys(), sorted(properties.keys() - _META_KEYS - _OTHER_META_KEYS)
        if missing and strange:
            raise StorageError(f"{strange[0]!r} is no property of it, and {min(missing)} is missing")
        if any(f"{key}=" in value for key in _META_KEYS for value in properties.values()):
            raise StorageError("two of its lines are one")
        if "directory.id" in properties:
            parse_uuid(properties["directory.id"])
        expected = properties.pop(_META_SUM, None)
        if expected not in (None, _sum_of(properties)):
            raise StorageError(f"its cluster.id has changed; whoever changes it by hand removes {_META_SUM} too")
        return properties
    except FileNotFoundError:
        return None
    except (StorageError, ValueError) as error:
        raise StorageError(
            f"{folder}/{META_PROPERTIES} is damaged ({error}): it does not say whose this folder is. Restore it from a "
            "backup; or remove it, and have it written by `tailrace format` with --cluster-id and --directory-id."
        ) from error


def write_meta_properties(disk: Disk, folder: str, properties: Mapping[str, str]) -> None:
    lines = [f"{key}={value}\n" for key, value in {**properties, _META_SUM: _sum_of(properties)}.items()]
    disk.replace(f"{folder}/{META_PROPERTIES}", "".join(lines).encode("utf-8"))


def _sum_of(properties: Mapping[str, str]) -> str:
    return f"{crc32c(properties.get('cluster.id', '').encode()):08x}"


class ProducerSnapshots:
    """The files %020d.snapshot of one log: the state of its producers at an offset. One is written at each roll and
    at a clean close. Each can be made again from an older one and the batches since, so nobody waits for the device;
    those between segments are synced with the segments, since the batches before them may be deleted."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self.offsets: list[int] = []  # in order

    def path(self, offset: int) -> str:
        return f"{self._folder}/{offset:020d}.snapshot"

    def move_to(self, folder: str) -> None:
        """The log's folder has a new name."""
        self._folder = folder

    def read(self, offset: int) -> bytes:
        return self._disk.read(self.path(offset))

    def write(self, offset: int, data: bytes, *, sync: bool = False) -> None:
        self._disk.replace(self.path(offset), data, sync=sync)
        if offset not in self.offsets:
            insort(self.offsets, offset)

    def newest_first(self, end_offset: int) -> list[int]:
        return [offset for offset in reversed(self.offsets) if offset <= end_offset]

    def remove(self, offset: int) -> None:
        self.offsets.remove(offset)
        try:
            self._disk.remove(self.path(offset))
        except FileNotFoundError:
            return

    def clear(self) -> None:
        for offset in list(self.offsets):
            self.remove(offset)

    def prune(self, base_offsets: Collection[int], *, end_offset: int) -> None:
        """Keeps those of the segments that are there, and the newest up to the log end."""
        newest = max((offset for offset in self.offsets if offset <= end_offset), default=-1)
        for offset in list(self.offsets):
            if offset > end_offset or (offset not in base_offsets and offset != newest):
                self.remove(offset)


def _split_entries(data: bytes, columns: int) -> list[list[str]]:
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise StorageError("it is not text") from error
    if lines[-1]:
        # A number that lost digits would look like another number.
        raise StorageError("its last line is cut short")
    if lines[0] != _VERSION:
        raise StorageError(f"its version is {lines[0]!r} and not {_VERSION}")
    count = _parse_number(lines[1]) if len(lines) > 1 else -1
    entries = [line.split(" ") for line in lines[2:] if line]
    if len(entries) != count:
        raise StorageError(f"it says {count} entries but has {len(entries)}")
    if any(len(entry) != columns for entry in entries):
        raise StorageError(f"an entry has not the {columns} words it needs")
    return entries


def _parse_number(word: str) -> int:
    try:
        return int(word)
    except ValueError as error:
        raise StorageError(f"{word[:20]!r} is not a number") from error


def _parse_properties(data: bytes, separator: str) -> dict[str, str]:
    properties = {}
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise StorageError("it is not text") from error
    for line in lines:
        if line.strip() and not line.startswith("#"):
            key, found, value = line.partition(separator)
            if not found:
                raise StorageError(f"the line {line[:60]!r} has no {separator!r}")
            properties[key.strip()] = value.strip()
    return properties
