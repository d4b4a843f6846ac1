"""The quorum-state file: epoch, vote and leader, as JSON of Kafka's QuorumStateData version 1, beside the metadata log.

It is replaced as a whole and synced before anything depends on it. A damaged one is never taken for an empty one: a
voter that forgets its vote could vote twice. That a voter has lost records and must catch up is kept with its vote.
"""

from __future__ import annotations

import asyncio
import json
from errno import EDQUOT, ENOSPC

from tailrace.model import events
from tailrace.model.errors import StorageError
from tailrace.model.ids import ZERO_UUID, parse_uuid, uuid_text
from tailrace.model.ports import Disk, Ports
from tailrace.raft.messages import NO_LEADER, QuorumState
from tailrace.raft.types import ReplicaKey

_log = events.logger("quorum")

FILE_NAME = "quorum-state"
_VERSION = 1
# Ours: a field that Kafka does not know, and passes over.
_MUST_CATCH_UP = "tailraceMustCatchUp"
_NOBODY = -1
_FULL_DISK_PAUSE_SECONDS = 0.5


def read_quorum_state(disk: Disk, folder: str) -> QuorumState | None:
    """None if there is none yet. StorageError if it cannot be read."""
    path = f"{folder}/{FILE_NAME}"
    try:
        fields = json.loads(disk.read(path))
        voted_id = int(fields["votedId"])
        directory_id = parse_uuid(fields["votedDirectoryId"]) if "votedDirectoryId" in fields else ZERO_UUID
        voted = ReplicaKey(voted_id, directory_id) if voted_id != _NOBODY else None
        must_catch_up = bool(fields.get(_MUST_CATCH_UP, False))
        return QuorumState(int(fields["leaderEpoch"]), voted, int(fields["leaderId"]), must_catch_up)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path} is damaged: {error!r}. This voter no longer knows how it has voted. Format its folder anew and "
            "add it to the quorum again."
        ) from error


async def store_quorum_state(ports: Ports, folder: str, state: QuorumState) -> None:
    """A full disk is waited out, since nobody was told anything yet. OSError for any other failure."""
    while True:
        try:
            await ports.background.run(lambda: write_quorum_state(ports.disk, folder, state))
            return
        except OSError as error:
            if error.errno not in (ENOSPC, EDQUOT):
                raise
            _log.warning("the disk is full: no part in elections until there is space", cause=error)
        await asyncio.sleep(_FULL_DISK_PAUSE_SECONDS)


def write_quorum_state(disk: Disk, folder: str, state: QuorumState) -> None:
    """Blocks: Background only. OSError."""
    voted = state.voted or ReplicaKey(_NOBODY, ZERO_UUID)
    fields: dict[str, object] = {
        "leaderId": state.leader_id if state.leader_id != NO_LEADER else _NOBODY,
        "leaderEpoch": state.epoch,
        "votedId": voted.id,
        "votedDirectoryId": uuid_text(voted.directory_id),
        "data_version": _VERSION,
    }
    if state.must_catch_up:
        fields[_MUST_CATCH_UP] = True
    disk.replace(f"{folder}/{FILE_NAME}", json.dumps(fields, separators=(",", ":")).encode())
