"""Credentials that a new cluster begins with: `format` leaves them beside the metadata log, and the first active
controller makes metadata of them. Without them nobody could log in to set the first one.

The file is Kafka's: `bootstrap.checkpoint` in the folder of the metadata, a snapshot by its form, which kafka-storage
writes too. Of what it holds SCRAM credentials are taken; which features a cluster has is decided otherwise here.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.broker.quorum.snapshots import SnapshotId, encode_snapshot, read_batches, read_metadata
from tailrace.log.files.failures import disk_errors
from tailrace.model.ports import Disk
from tailrace.wire.apis.stored_records import UserScramCredentialRecord

_FILE = "bootstrap.checkpoint"


def store_bootstrap(
    disk: Disk, metadata_folder: str, credentials: Sequence[UserScramCredentialRecord], *, timestamp_ms: int
) -> None:
    """Blocks. StorageError."""
    pieces = encode_snapshot(SnapshotId(0, 0), [list(credentials)], control=(), timestamp_ms=timestamp_ms)
    with disk_errors(f"{metadata_folder}/{_FILE} cannot be written"):
        disk.make_folder(metadata_folder)
        disk.replace(f"{metadata_folder}/{_FILE}", b"".join(pieces))


def read_bootstrap(disk: Disk, metadata_folder: str) -> list[UserScramCredentialRecord]:
    """Small, and read once in the life of a cluster. StorageError."""
    path = f"{metadata_folder}/{_FILE}"
    with disk_errors(f"{path} cannot be read"):
        try:
            file = disk.open(path)
        except FileNotFoundError:
            return []
    return [
        record
        for header, batch in read_batches(file)
        if not header.is_control
        for record in read_metadata(batch)
        if isinstance(record, UserScramCredentialRecord)
    ]
