"""What a quorum is made of: replicas, voters, places in the log; and what the machine asks of the log.

A voter is (node id, directory id), so that a node with an emptied disk is another one and cannot vote twice (KIP-853).
Voter sets are values: a change gives a new set. Everything is ordered by node id, so that runs can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tailrace.model.config import Endpoint
from tailrace.model.ids import ZERO_UUID, Uuid
from tailrace.wire.apis.stored_records import VotersRecord

# Voters that are known without a record of the log: from `format`'s snapshot at offset 0, or a standalone node.
BOOTSTRAP_OFFSET = -1
# kraft.version 1: voters are kept in the log (KIP-853). Nothing older is spoken.
KRAFT_VERSION = 1
_VOTERS_RECORD_VERSION = 0


class ReplicaKey(NamedTuple):
    """A node and the folder its metadata log lies in."""

    id: int
    directory_id: Uuid

    def matches(self, other: ReplicaKey) -> bool:
        """Old versions of requests carry no directory: then the id alone must do."""
        if self.id != other.id:
            return False
        return ZERO_UUID in (self.directory_id, other.directory_id) or self.directory_id == other.directory_id


class OffsetAndEpoch(NamedTuple):
    """An end of a log, or of an epoch in it, or of a snapshot: the offset is exclusive."""

    offset: int
    epoch: int

    @property
    def rank(self) -> tuple[int, int]:
        """The log with the greater rank has everything that was committed (Raft, 5.4.1)."""
        return self.epoch, self.offset


class Voter(NamedTuple):
    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """Where it is reached: by the listener of that name, else the first it has."""
        for endpoint in self.endpoints:
            if endpoint.listener_name == listener_name:
                return endpoint
        return self.endpoints[0] if self.endpoints else None


@dataclass(frozen=True, slots=True)
class VoterSet:
    # By node id; one of each.
    voters: tuple[Voter, ...] = ()

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(voter.key.id for voter in self.voters)

    def find(self, node_id: int) -> Voter | None:
        for voter in self.voters:
            if voter.key.id == node_id:
                return voter
        return None

    def contains(self, key: ReplicaKey) -> bool:
        voter = self.find(key.id)
        return voter is not None and voter.key.matches(key)

    def with_voter(self, added: Voter) -> VoterSet:
        """Replaces one with the same id."""
        others = [voter for voter in self.voters if voter.key.id != added.key.id]
        return VoterSet(tuple(sorted([*others, added], key=lambda voter: voter.key.id)))

    def without(self, key: ReplicaKey) -> VoterSet:
        return VoterSet(tuple(voter for voter in self.voters if not voter.key.matches(key)))

    @classmethod
    def of_record(cls, record: VotersRecord) -> VoterSet:
        voters = [
            Voter(
                ReplicaKey(voter.voter_id, Uuid(bytes(voter.voter_directory_id))),
                tuple(Endpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
            )
            for voter in record.voters
        ]
        return cls(tuple(sorted(voters, key=lambda voter: voter.key.id)))

    def to_record(self) -> VotersRecord:
        feature = VotersRecord.KRaftVersionFeature(min_supported_version=0, max_supported_version=KRAFT_VERSION)
        return VotersRecord(
            version=_VOTERS_RECORD_VERSION,
            voters=[
                VotersRecord.Voter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[
                        VotersRecord.Endpoint(name=name, host=host, port=port) for name, host, port in voter.endpoints
                    ],
                    kraft_version_feature=feature,
                )
                for voter in self.voters
            ],
        )


class RaftLog(Protocol):
    """What the machine reads of the log. Only the driver writes it, as the machine says."""

    @property
    def start_offset(self) -> int: ...

    @property
    def start_epoch(self) -> int:
        """The epoch of the last record before `start_offset`, known from the snapshot that ends there; 0 for a log
        that starts at 0."""

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; `start_epoch` if the log is empty."""

    @property
    def synced_end_offset(self) -> int:
        """What a power loss leaves."""

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """The greatest epoch of the log that is not greater than `epoch`, and where it ends. An epoch before the first
        of the log gives (start_offset, start_epoch)."""
