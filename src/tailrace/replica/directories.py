"""The data folders of this broker as a whole (`log.dirs`, KIP-858).

Rules:
  - A folder that cannot be opened, or whose device fails later, is offline until a restart; the others go on, as
    long as one is left. One that belongs to someone else or is in use is refused: to go on would hide a mistake.
  - The folder of the metadata log must be sound: without it the node knows nothing.
  - The broker may name an epoch as its last only if every folder proves that same one.

Never opens a log, and knows nothing of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import overload

from tailrace.controller.image import NO_DIRECTORY, UNASSIGNED_DIRECTORY, MetadataImage
from tailrace.log.directory import LogDirectory
from tailrace.log.run_marks import NO_BROKER_EPOCH
from tailrace.model import events
from tailrace.model.errors import StorageError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC, NodeId, TopicPartition, Uuid
from tailrace.model.ports import Clock, Disk, Random
from tailrace.wire.apis.quorum import AssignReplicasToDirsRequest

_log = events.logger("directories")


class LogDirectories(Sequence[LogDirectory]):
    """Those that could be opened, in the order of `log.dirs`; some may have failed since."""

    def __init__(self, opened: Sequence[LogDirectory], unusable: dict[str, str] | None = None) -> None:
        self._opened = tuple(opened)
        self.unusable = unusable or {}  # folders that could not be opened, and why
        # Told on the loop when a folder fails; whether one is left is for `are_all_offline` to say.
        self.on_offline: list[Callable[[LogDirectory], None]] = []
        self.on_log_broken: list[Callable[[TopicPartition], None]] = []  # Told on the loop of a log that has given up.
        for directory in self._opened:
            directory.on_offline = partial(self._tell, directory)
            directory.on_log_broken = self._tell_broken
        if len(self._opened) + len(self.unusable) > 1:
            self.fail_as_whole()

    @classmethod
    def of(cls, directories: Sequence[LogDirectory]) -> LogDirectories:
        return directories if isinstance(directories, LogDirectories) else cls(directories)

    @classmethod
    def open(
        cls,
        disk: Disk,
        clock: Clock,
        random: Random,
        paths: Sequence[str],
        *,
        node_id: int,
        cluster_id: str,
        required: str,
    ) -> LogDirectories:
        """Raises StorageError if a folder is not this node's, if `required` cannot be used, or none can; nothing is
        left open then."""
        opened: list[LogDirectory] = []
        unusable: dict[str, str] = {}
        try:
            for path in paths:
                try:
                    opened.append(LogDirectory.open(disk, clock, random, path, node_id=node_id, cluster_id=cluster_id))
                except StorageError as error:
                    is_broken = isinstance(error.__cause__, OSError) and not isinstance(
                        error.__cause__, BlockingIOError
                    )
                    if not is_broken or path == required or (path == paths[-1] and not opened):
                        raise
                    unusable[path] = str(error)
                    _log.error("a data folder cannot be used and is left out", folder=path, cause=error)
            _check_no_copies(opened)
        except StorageError:
            for directory in opened:
                directory.close(clean=False)
            raise
        return cls(opened, unusable)

    @staticmethod
    def stored_cluster_id(disk: Disk, paths: Sequence[str]) -> str | None:
        """Of the first that knows one."""
        found = (LogDirectory.stored_cluster_id(disk, path) for path in paths)
        return next((cluster_id for cluster_id in found if cluster_id is not None), None)

    @overload
    def __getitem__(self, index: int) -> LogDirectory: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[LogDirectory]: ...

    def __getitem__(self, index: int | slice) -> LogDirectory | Sequence[LogDirectory]:
        return self._opened[index]

    def __len__(self) -> int:
        return len(self._opened)

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._opened)

    def fail_as_whole(self) -> None:
        """There are others, folders or brokers, who can go on: a device that fails takes its folder offline."""
        for directory in self._opened:
            directory.fails_as_whole = True

    @property
    def online(self) -> list[LogDirectory]:
        return [each for each in self._opened if not each.is_offline]

    @property
    def are_all_offline(self) -> bool:
        """Then the broker is of no use, and should stop."""
        return all(each.is_offline for each in self._opened)

    def online_directory_ids(self) -> list[Uuid]:
        """What a registration tells the controller."""
        return [each.directory_id for each in self._opened if not each.is_offline]

    def offline_directory_ids(self) -> list[Uuid]:
        """What a heartbeat tells it: those that have failed since the registration, or since the start. One that could
        not be opened is not among them, for it was never registered."""
        return [each.directory_id for each in self._opened if each.is_offline]

    def choose(self, assigned: Uuid = UNASSIGNED_DIRECTORY) -> LogDirectory:
        """For a log that lies in no folder that is online: the one that the metadata names, else that with the fewest
        logs. StorageError while the log may lie in one that is offline: a new, empty one must not take its place."""
        online = self.online
        named = next((each for each in online if each.directory_id == assigned), None)
        if named is not None:
            return named
        if assigned not in NO_DIRECTORY and (self.unusable or len(online) < len(self._opened)):
            raise StorageError("the log may lie in a data folder that is offline")
        if not online:
            raise StorageError("all data folders are offline")
        return min(online, key=lambda each: len(each.logs))

    def would_hold(self, assigned: Uuid) -> bool:
        """Whether a log that the metadata places there has to be in a folder that is online now."""
        is_complete = not self.unusable and len(self.online) == len(self._opened)
        return assigned in self.online_directory_ids() or (assigned in NO_DIRECTORY and is_complete)

    def find_logs(self, node_id: NodeId, image: MetadataImage) -> dict[TopicPartition, LogDirectory]:
        """The logs of the last run, and where they lie. Those of unknown topics are set aside: a kill between a
        deletion and the renaming of its folders leaves such, but so does a lost metadata log, and then they are all
        there is."""
        logs: dict[TopicPartition, LogDirectory] = {}
        for directory in self:
            for topic_partition in directory.partitions_on_disk():
                if topic_partition.topic == CLUSTER_METADATA_TOPIC:
                    continue
                topic = image.topics.get(topic_partition.topic)
                # The log of a replica that was moved elsewhere meanwhile is taken too: its manager deletes it.
                if (
                    topic is not None
                    and topic_partition.partition in topic.partitions
                    and directory.may_hold(topic_partition, topic.id)
                ):
                    found, twin = directory, logs.get(topic_partition)
                    if twin is not None:
                        assigned = topic.partitions[topic_partition.partition].directory(node_id)
                        found = self.settle_twins(topic_partition, directory, twin, assigned)
                    logs[topic_partition] = found
                else:
                    target = directory.set_stray_aside(topic_partition)
                    _log.warning("set a log aside that the metadata does not know", folder=target)
        return logs

    def settle_twins(
        self, topic_partition: TopicPartition, one: LogDirectory, other: LogDirectory, assigned: Uuid
    ) -> LogDirectory:
        """Two folders have the same log after a move that was stopped at its very end. The one that the metadata names
        is right, since it is told before the swap; the other is deleted, or set aside if it names neither. Raises
        StorageError."""
        kept, left = (other, one) if other.directory_id == assigned else (one, other)
        _log.warning("a log lies in two data folders", partition=topic_partition, kept=kept.path, left=left.path)
        if kept.directory_id == assigned:
            left.delete_log(topic_partition)
        else:
            left.set_stray_aside(topic_partition)
        return kept

    @property
    def previous_broker_epoch(self) -> int:
        return previous_broker_epoch(self._opened) if not self.unusable else NO_BROKER_EPOCH

    @property
    def previous_incarnation(self) -> str:
        """That every folder was about to register as, when its run was killed; else nothing."""
        incarnations = {directory.proof.last_run.incarnation for directory in self._opened}
        return incarnations.pop() if len(incarnations) == 1 and not self.unusable else ""

    def note_registering(self, incarnation: str, broker_epoch: int) -> None:
        """Before the registration, with the epoch that is proved: if this run is killed before `note_running`, the
        metadata can still tell which epoch its incarnation got. Blocks, as below."""
        self._mark(lambda directory: directory.proof.note_registering(incarnation, broker_epoch))

    def note_running(self, broker_epoch: int) -> None:
        """After each registration, for only then the epoch is known. Blocks: Background only. What cannot be written
        costs only the proof."""
        self._mark(lambda directory: directory.proof.note_running(broker_epoch))

    def report_recovery(self) -> None:
        for directory in self._opened:
            directory.report_recovery()

    def _mark(self, write: Callable[[LogDirectory], None]) -> None:
        for directory in self._opened:
            try:
                write(directory)
            except OSError as error:
                _log.warning("the run mark cannot be written", folder=directory.path, cause=error)

    def resume_proofs(self) -> None:
        """The controller knows of all damage that was found."""
        for directory in self._opened:
            directory.proof.resume()

    def _tell(self, directory: LogDirectory) -> None:
        for tell in self.on_offline:
            tell(directory)

    def _tell_broken(self, topic_partition: TopicPartition) -> None:
        for tell in self.on_log_broken:
            tell(topic_partition)


class StoredHighWatermarks:
    """Those of each folder, read when they are first asked for."""

    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        self._directories = directories
        self._offsets: dict[LogDirectory, dict[TopicPartition, int]] = {}

    def begin_storing(self, directory: LogDirectory, offsets: dict[TopicPartition, int]) -> Callable[[], None]:
        """Work for Background; it raises OSError."""
        if directory in self._offsets:
            self._offsets[directory] = offsets
        return lambda: directory.checkpoint_high_watermarks(offsets)

    def find(self, topic_partition: TopicPartition, *, is_new: bool) -> int:
        """0 if nothing is known: the next leader epoch finds out. A new log must not inherit that of an earlier topic
        with its name, not even if this process dies before the next checkpoint."""
        directory = next(each for each in self._directories if topic_partition in each.logs)
        stored = self._offsets.get(directory)
        if stored is None:
            stored = self._offsets[directory] = directory.read_high_watermarks()
        if is_new and topic_partition in stored:
            del stored[topic_partition]
            try:
                directory.checkpoint_high_watermarks(stored)
            except OSError as error:
                raise StorageError(f"the high watermarks in {directory.path} cannot be stored: {error}") from error
        return stored.get(topic_partition, 0)


def previous_broker_epoch(directories: Sequence[LogDirectory]) -> int:
    """The epoch that every folder proves, else -1 (`log.run_marks` has the rule of each)."""
    epochs = {directory.previous_broker_epoch for directory in directories}
    return epochs.pop() if len(epochs) == 1 else NO_BROKER_EPOCH


def find_log(directories: Sequence[LogDirectory], topic_partition: TopicPartition) -> LogDirectory | None:
    """The folder in which the log is open."""
    return next((each for each in directories if topic_partition in each.logs), None)


def decide_assignments(
    image: MetadataImage, node_id: NodeId, directory: LogDirectory, topic_partitions: Sequence[TopicPartition]
) -> dict[Uuid, list[int]]:
    """Which of these logs in a folder the metadata thinks elsewhere (KIP-858), as topic ids and partitions."""
    wrong: dict[Uuid, list[int]] = {}
    for topic_partition in topic_partitions:
        topic = image.topics.get(topic_partition.topic)
        state = topic.partitions.get(topic_partition.partition) if topic is not None else None
        if topic is None or state is None or node_id not in state.replicas:
            continue
        if state.directory(node_id) != directory.directory_id:
            wrong.setdefault(topic.id, []).append(topic_partition.partition)
    return wrong


def assignment_request(
    assignments: Mapping[Uuid, Mapping[Uuid, Sequence[int]]], *, node_id: NodeId, broker_epoch: int
) -> AssignReplicasToDirsRequest:
    """From directory id to topic id to partitions."""
    request = AssignReplicasToDirsRequest(broker_id=node_id, broker_epoch=broker_epoch)
    for directory_id, topics in assignments.items():
        directory = AssignReplicasToDirsRequest.DirectoryData(id=directory_id)
        request.directories.append(directory)
        for topic_id, partitions in topics.items():
            entries = [AssignReplicasToDirsRequest.PartitionData(partition_index=index) for index in partitions]
            directory.topics.append(AssignReplicasToDirsRequest.TopicData(topic_id=topic_id, partitions=entries))
    return request


def _check_no_copies(opened: Sequence[LogDirectory]) -> None:
    """Which of the two is the copy nobody can tell but who has made it."""
    known: dict[Uuid, str] = {}
    for directory in opened:
        other = known.setdefault(directory.directory_id, directory.path)
        if other != directory.path:
            raise StorageError(
                f"The data folders {other} and {directory.path} have the same directory.id: one is a copy of the "
                "other. Take the copy out of log.dirs; to use its place, empty it first."
            )
