"""Snapshots between nodes (KIP-630): taken from the leader piece by piece, and given to replicas.

A download is a `.part` file until it is whole and on the device; then `RaftDriver.install` lets the log start at its
end. It is begun anew after any failure, and cancelled when the node follows another leader.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tailrace.broker.quorum.snapshots import slice_of
from tailrace.model import events
from tailrace.model.config import Endpoint
from tailrace.model.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC
from tailrace.model.ports import FileSlice
from tailrace.raft.messages import Reply, SnapshotFailed, SnapshotProgress
from tailrace.raft.translation import error_code_of, the_partition
from tailrace.raft.types import OffsetAndEpoch
from tailrace.wire.apis.quorum import FetchSnapshotRequest, FetchSnapshotResponse

if TYPE_CHECKING:
    from tailrace.broker.quorum.driver import RaftDriver

_log = events.logger("quorum")

# A piece: some milliseconds of the network, and little memory.
_PIECE_BYTES = 1 << 20


class Downloads:
    """One at a time: the snapshot that the node wants, as long as it wants it."""

    def __init__(self, driver: RaftDriver) -> None:
        self._driver = driver
        self._wanted: OffsetAndEpoch | None = None
        self._task: asyncio.Task[None] | None = None

    def follow(self, wanted: OffsetAndEpoch | None) -> None:
        if wanted == self._wanted:
            return
        if self._task is not None:
            self._task.cancel()
        self._wanted, self._task = wanted, None
        endpoint = self._driver.leadership.endpoint
        if wanted is not None and endpoint is not None:
            self._task = asyncio.create_task(self._supervise(wanted, endpoint), name="snapshot download")

    async def _supervise(self, snapshot: OffsetAndEpoch, endpoint: Endpoint) -> None:
        driver = self._driver
        try:
            await _download(driver, snapshot, endpoint)
            # From here on it is another one, should the node want the same again.
            self._wanted = self._task = None
            driver.install(snapshot)
        except (KafkaError, ProtocolError, StorageError, OSError) as error:
            if driver.log.failure is not None:
                driver.fail(error)
                return
            _log.warning("a snapshot could not be downloaded", snapshot=snapshot, cause=error)
            self._wanted = self._task = None
            driver.feed(SnapshotFailed(snapshot))
        except Exception as error:
            driver.fail(error)


async def _download(driver: RaftDriver, snapshot: OffsetAndEpoch, endpoint: Endpoint) -> None:
    """Until the file is whole and on the device. What is not is removed."""
    part = driver.log.snapshots.begin(snapshot)
    is_stored = False
    try:
        while True:
            piece = await _ask_for_piece(driver, snapshot, endpoint, part.size_bytes)
            records = piece.unaligned_records
            data = records.read() if isinstance(records, FileSlice) else records
            if not len(data):
                raise ProtocolError(f"the leader sent nothing at position {part.size_bytes} of {piece.size}")
            part.append(data)
            driver.feed(SnapshotProgress())
            if part.size_bytes >= piece.size:
                break
        await driver.ports.background.run(part.store)
        is_stored = True
    finally:
        if not is_stored:
            part.discard()


async def _ask_for_piece(
    driver: RaftDriver, snapshot: OffsetAndEpoch, endpoint: Endpoint, position: int
) -> FetchSnapshotResponse.PartitionSnapshot:
    partition = FetchSnapshotRequest.PartitionSnapshot(
        current_leader_epoch=driver.node.epoch,
        snapshot_id=FetchSnapshotRequest.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=driver.key.directory_id,
    )
    request = FetchSnapshotRequest(
        cluster_id=driver.cluster_id,
        replica_id=driver.key.id,
        max_bytes=_PIECE_BYTES,
        topics=[FetchSnapshotRequest.TopicSnapshot(name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
    )
    response = await driver.call_peer(
        endpoint,
        request,
        FetchSnapshotResponse,
        timeout_ms=driver.config.controller_quorum_request_timeout_ms,
        channel="raft-fetch",
    )
    piece: FetchSnapshotResponse.PartitionSnapshot | None = the_partition(response)
    code = error_code_of(response.error_code or (piece.error_code if piece is not None else 0))
    if code or piece is None:
        raise KafkaError(code or ErrorCode.UNKNOWN_SERVER_ERROR, "The leader did not send its snapshot.")
    if piece.position != position:
        raise ProtocolError(f"the leader sent position {piece.position} of a snapshot instead of {position}")
    return piece


def answer_piece(driver: RaftDriver, request: FetchSnapshotRequest, reply: Reply) -> FetchSnapshotResponse:
    """The piece that was asked for, if the node lets it be given."""
    asked = the_partition(request)
    given = FetchSnapshotResponse.PartitionSnapshot(
        error_code=reply.error,
        snapshot_id=FetchSnapshotResponse.SnapshotId(
            end_offset=asked.snapshot_id.end_offset, epoch=asked.snapshot_id.epoch
        ),
        current_leader=FetchSnapshotResponse.LeaderIdAndEpoch(leader_id=reply.leader_id, leader_epoch=reply.epoch),
        position=asked.position,
        unaligned_records=b"",
    )
    if reply.error is ErrorCode.NONE:
        file = driver.log.snapshots.open_file(OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch))
        if file is None:
            given.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= asked.position < file.size:
            given.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            given.size = file.size
            given.unaligned_records = slice_of(file, asked.position, max(request.max_bytes, 1))
    topic = FetchSnapshotResponse.TopicSnapshot(name=CLUSTER_METADATA_TOPIC, partitions=[given])
    endpoints = [
        FetchSnapshotResponse.NodeEndpoint(node_id=reply.leader_id, host=endpoint.host, port=endpoint.port)
        for endpoint in ([reply.endpoint] if reply.endpoint is not None else [])
    ]
    return FetchSnapshotResponse(topics=[topic], node_endpoints=endpoints)
