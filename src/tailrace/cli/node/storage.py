"""What a new data folder gets before its first start: whose it is, in meta.properties; of a controller, the voters too.

Nothing that is there is ever touched. A voter is a node and the folder that holds its vote, so the folder's id is part
of what the other voters are told: an emptied disk comes back as a stranger and cannot vote a second time. But for those
that controller.quorum.voters names: there the ids follow from the node's, and the file is taken at its word.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from tailrace.cli import CommandError
from tailrace.log.checkpoints import read_meta_properties, write_meta_properties
from tailrace.log.identity import find_data, nameless
from tailrace.model.errors import StorageError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC, Uuid, uuid_text
from tailrace.real.clock import RealClock
from tailrace.real.disk import RealDisk
from tailrace.real.random import RealRandom

if TYPE_CHECKING:
    from tailrace.model.config import BrokerConfig
    from tailrace.wire.apis.stored_records import UserScramCredentialRecord

# The levels of kraft.version that this release can follow: 0 fixed voters, 1 voters that are records.
_KRAFT_VERSIONS = range(2)


class Voter(NamedTuple):
    node_id: int
    directory_id: Uuid
    listener_name: str
    host: str
    port: int


def new_uuid_text() -> str:
    return uuid_text(Uuid(RealRandom().uuid()))


def directory_id_of(cluster_id: str, node_id: int) -> Uuid:
    """Of a voter that controller.quorum.voters names: each node finds the ids of all for itself."""
    for number in count():
        found = Uuid(sha256(f"{cluster_id} {node_id} {number}".encode()).digest()[:16])
        # As Kafka's tools: a word that begins so would be an option of a command.
        if not uuid_text(found).startswith("-"):
            return found
    raise AssertionError("unreachable")


def folders_of(config: BrokerConfig) -> list[str]:
    """Each once, in the order of the settings."""
    return list(dict.fromkeys((*config.log_dirs, config.metadata_folder)))


def unformatted_folders(config: BrokerConfig, *, may_hold_data: bool = False) -> list[str]:
    """CommandError if one holds data and does not say whose."""
    unformatted = [folder for folder in folders_of(config) if properties_of(folder) is None]
    for folder in unformatted:
        evidence = data_in(folder)
        if evidence is not None and not may_hold_data:
            raise CommandError(nameless(folder, evidence))
    return unformatted


def data_in(folder: str) -> str | None:
    """Something that only a node can have left there."""
    try:
        return find_data(RealDisk(), folder)
    except OSError as error:
        raise CommandError(f"cannot read {folder}: {error.strerror}") from None


def stored_cluster_id(folders: Sequence[str]) -> str | None:
    """A new disk of a node joins the cluster that its other disks belong to."""
    properties = properties_of(folders[0]) if folders else None
    return properties.get("cluster.id") if properties else None


def format_folder(folder: str, *, cluster_id: str, node_id: int, directory_id: str | None = None) -> None:
    disk = RealDisk()
    properties = {
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": directory_id or new_uuid_text(),
    }
    try:
        disk.make_folder(folder)
        write_meta_properties(disk, folder, properties)
    except OSError as error:
        raise CommandError(f"cannot format {folder}: {error.strerror}") from None


def store_voters(metadata_folder: str, voters: Sequence[Voter]) -> None:
    """The first voters of a quorum: the same list on each of them, before any of them starts."""
    from tailrace.broker.quorum.snapshots import store_bootstrap_snapshot
    from tailrace.wire.apis.stored_records import VotersRecord

    records = [
        VotersRecord.Voter(
            voter_id=voter.node_id,
            voter_directory_id=voter.directory_id,
            endpoints=[VotersRecord.Endpoint(name=voter.listener_name, host=voter.host, port=voter.port)],
            kraft_version_feature=VotersRecord.KRaftVersionFeature(
                min_supported_version=_KRAFT_VERSIONS[0], max_supported_version=_KRAFT_VERSIONS[-1]
            ),
        )
        for voter in sorted(voters)
    ]
    folder = f"{metadata_folder}/{CLUSTER_METADATA_TOPIC}-0"
    try:
        store_bootstrap_snapshot(RealDisk(), folder, records, timestamp_ms=RealClock().wall_ms())
    except StorageError as error:
        raise CommandError(str(error)) from None


def store_credentials(metadata_folder: str, credentials: Sequence[UserScramCredentialRecord]) -> None:
    """What the first active controller makes metadata of: the same on each of them, before any of them starts."""
    from tailrace.broker.quorum.bootstrap import store_bootstrap

    try:
        store_bootstrap(RealDisk(), metadata_folder, credentials, timestamp_ms=RealClock().wall_ms())
    except StorageError as error:
        raise CommandError(str(error)) from None


def properties_of(folder: str) -> dict[str, str] | None:
    try:
        return read_meta_properties(RealDisk(), folder)
    except StorageError as error:
        raise CommandError(str(error)) from None
