"""A coordinator's client: blocking requests about a group's offsets, one after the other."""

import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

from tailrace.wire.apis.groups import FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.schema import Message

_DEADLINE_S = 120.0
_COORDINATOR_ERRORS = (14, 15, 16)


def commit_request(group: str, topic: str, start: int, count: int) -> bytes:
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=1_000 + partition, committed_metadata=""
        )
        for partition in range(start, start + count)
    ]
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=partitions)]
    return _frame(OffsetCommitRequest(group_id=group, topics=topics), 8)


def _frame(request: Message, version: int) -> bytes:
    return b"".join(bytes(part) for part in encode_request(request.api_key, version, 1, "bench", request))


class Connection:
    """Blocking requests, one after the other."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_DEADLINE_S)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: Message, version: int) -> Any:
        self.send(_frame(request, version))
        return decode_response(request.api_key, version, self.receive())[1]

    def send(self, frames: bytes) -> None:
        self._socket.sendall(frames)

    def ask_raw(self, request: bytes) -> bytes:
        """The answer, with its length before it."""
        self._socket.sendall(request)
        answer = self.receive()
        return struct.pack(">i", len(answer)) + answer

    def find_coordinator(self, group: str) -> None:
        """Also makes the topic of offsets if there is none yet."""
        for _ in self._tries():
            answer = self.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6)
            if answer.coordinators[0].error_code == 0:
                return

    def commit(self, group: str, topic: str, count: int) -> None:
        for _ in self._tries():
            self._socket.sendall(commit_request(group, topic, 0, count))
            _, answer = decode_response(OffsetCommitRequest.api_key, 8, self.receive())
            codes = {each.error_code for each in answer.topics[0].partitions}
            if codes == {0}:
                return

    def wait_committed(self, group: str, topic: str, count: int) -> None:
        """Until its coordinator gives the last of its offsets."""
        topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[count - 1])]
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)
        for _ in self._tries():
            (answer,) = self.ask(OffsetFetchRequest(groups=[wanted]), 9).groups
            if answer.error_code == 0:
                assert answer.topics[0].partitions[0].committed_offset == 1_000 + count - 1, "an offset is lost"
                return
            assert answer.error_code in _COORDINATOR_ERRORS, answer

    def _tries(self) -> Iterator[None]:
        deadline = time.monotonic() + _DEADLINE_S
        while time.monotonic() < deadline:
            yield
            time.sleep(0.005)
        raise TimeoutError("the coordinator does not answer")

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            data += chunk
        return bytes(data)
