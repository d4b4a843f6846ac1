"""What people are told of a damaged metadata log before anything is cut: which records would go, and what they say.

Records of a damaged batch are shown as far as they can be read, and marked: a flipped bit seldom hits more than one.
Looks only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tailrace.broker.quorum.control_records import read_control_batch
from tailrace.broker.quorum.damage.inspection import Inspection, iterate_batches
from tailrace.broker.quorum.snapshots import SnapshotFiles, file_name, read_batches
from tailrace.log.files.failures import disk_errors
from tailrace.model.errors import KafkaError, ProtocolError, StorageError
from tailrace.model.ids import Uuid, uuid_text
from tailrace.model.ports import Bytes, Disk, File
from tailrace.wire.apis.stored_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    VotersRecord,
)
from tailrace.wire.record_envelopes import decode_metadata_record
from tailrace.wire.records import HEADER_SIZE, BatchHeader, iterate_records, read_header
from tailrace.wire.schema import Message

_MAX_DECOMPRESSED_BYTES = 64 << 20
_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4


class LostRecord(NamedTuple):
    offset: int
    text: str
    # The topic that it tells of, if any.
    topic: str | None
    # False: its batch is damaged, and this may not be what was written.
    is_sound: bool


def read_lost(disk: Disk, found: Inspection) -> list[LostRecord]:
    """The records behind what is left, as far as they can be read, in the order of their offsets. StorageError."""
    end_offset = found.rest.end_offset
    with disk_errors(f"{found.folder} cannot be read"):
        lost = [
            *((offset, message, True) for offset, message in _sound_records(disk, found) if offset >= end_offset),
            *((offset, message, False) for offset, message in _damaged_records(disk, found) if offset >= end_offset),
        ]
        names = _topic_names(disk, found)
    names |= {message.topic_id: message.name for _, message, _ in lost if isinstance(message, TopicRecord)}
    ordered = sorted(lost, key=lambda each: each[0])
    return [LostRecord(offset, *_describe(message, names), is_sound) for offset, message, is_sound in ordered]


def _sound_records(disk: Disk, found: Inspection) -> Iterator[tuple[int, Message]]:
    for run in found.runs:
        for extent in run.extents:
            file, position = disk.open(extent.path), extent.position
            for header, batch in iterate_batches(file, position):
                if header is None or position >= extent.end_position:
                    break
                position += header.size_bytes
                yield from _records(header, batch)


def _damaged_records(disk: Disk, found: Inspection) -> Iterator[tuple[int, Message]]:
    for flaw in found.damage:
        if not disk.is_folder(flaw.path):
            yield from _read_damaged_batch(disk.open(flaw.path), flaw.position)
    for snapshot in found.damaged_snapshots:
        try:
            for header, batch in read_batches(disk.open(f"{found.folder}/{file_name(snapshot)}")):
                # Counted within the file: they all were before its end.
                yield from ((snapshot.offset - 1, message) for _, message in _records(header, batch))
        except StorageError:
            continue


def _read_damaged_batch(file: File, position: int) -> Iterator[tuple[int, Message]]:
    data = file.read(position, max(0, file.size - position))
    try:
        header = read_header(data) if len(data) >= HEADER_SIZE else None
    except KafkaError:
        return
    if header is not None and header.size_bytes <= len(data):
        yield from _records(header, data[: header.size_bytes])


def _records(header: BatchHeader, batch: Bytes) -> Iterator[tuple[int, Message]]:
    """As far as they can be read."""
    try:
        if header.is_control:
            yield from read_control_batch(batch)
            return
        for record in iterate_records(batch, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES):
            yield record.offset, decode_metadata_record(record.value or b"")
    except (ProtocolError, KafkaError):
        return


def _topic_names(disk: Disk, found: Inspection) -> dict[bytes, str]:
    """Records of partitions tell the topic's id alone."""
    files = SnapshotFiles(disk, found.folder, found.snapshots)
    messages = [message for _, message in _sound_records(disk, found)]
    file = files.open_file(found.snapshots[-1]) if found.snapshots else None
    for header, batch in read_batches(file) if file is not None else ():
        messages += [message for _, message in _records(header, batch)]
    return {message.topic_id: message.name for message in messages if isinstance(message, TopicRecord)}


def _describe(message: Message, names: dict[bytes, str]) -> tuple[str, str | None]:
    """In words, and the topic."""
    if isinstance(message, TopicRecord):
        return f"topic {message.name}", message.name
    if isinstance(message, PartitionRecord | PartitionChangeRecord | RemoveTopicRecord):
        topic = names.get(message.topic_id) or f"with id {uuid_text(Uuid(bytes(message.topic_id)))}"
        if isinstance(message, RemoveTopicRecord):
            return f"the deletion of topic {topic}", topic
        change = "a change of " if isinstance(message, PartitionChangeRecord) else ""
        return f"{change}partition {message.partition_id} of topic {topic}", topic
    if isinstance(message, ConfigRecord):
        kinds = {_TOPIC_RESOURCE: "topic ", _BROKER_RESOURCE: "broker "}
        owner = f"{kinds.get(message.resource_type, '')}{message.resource_name or 'all brokers'}"
        is_topic = message.resource_type == _TOPIC_RESOURCE
        return f"setting {message.name} of {owner}", message.resource_name if is_topic else None
    if isinstance(message, RegisterBrokerRecord):
        return f"the registration of broker {message.broker_id}", None
    if isinstance(message, VotersRecord):
        return f"the voters {', '.join(str(voter.voter_id) for voter in message.voters)}", None
    return type(message).__name__, None
