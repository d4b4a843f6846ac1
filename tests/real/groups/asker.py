"""A client that asks exactly what it is told to, in the version that it is told, and waits for nothing else."""

import socket
import struct
import threading
import time
from typing import Any, Self

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis import response_type
from tailrace.wire.apis.groups import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.schema import Message

TIMEOUT_S = 15.0
CLIENT_ID = "asker"
_NOT_YET = (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class Asker:
    """One connection."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: Message, version: int | None = None) -> Any:
        """In the newest version unless told otherwise."""
        if version is None:
            version = response_type(request.api_key).versions[-1]
        self.send(request, version)
        return self.receive(request.api_key, version)

    def send(self, request: Message, version: int) -> None:
        self._sent += 1
        for part in encode_request(request.api_key, version, self._sent, CLIENT_ID, request):
            self._socket.sendall(part)

    def receive(self, api_key: int, version: int) -> Any:
        (size,) = struct.unpack(">i", self._exactly(4))
        _, response = decode_response(api_key, version, self._exactly(size))
        return response

    def find_coordinator(self, group: str) -> int:
        """The error, once the topic of offsets is there."""
        answer = self.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
        return answer.coordinators[0].error_code

    def join(self, group: str, member_id: str = "", version: int = 9, **fields: Any) -> Any:
        return self.ask(join_request(group, member_id, **fields), version)

    def join_alone(self, group: str, **fields: Any) -> tuple[str, int]:
        """As the only member, until the group is stable; its id and generation."""
        joined = self.join(group, **fields)
        deadline = time.monotonic() + TIMEOUT_S
        while joined.error_code in _NOT_YET and time.monotonic() < deadline:
            joined = self.join(group, joined.member_id, **fields)
        assert joined.error_code == 0, joined
        request = SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
        request.group_instance_id = fields.get("group_instance_id")
        assert self.ask(request, 4).error_code == 0
        return joined.member_id, joined.generation_id

    def commit(self, group: str, topic: str, version: int = 9, *, partition: int = 0, **fields: Any) -> int:
        """The error of the one partition."""
        parts = {name: fields.pop(name) for name in ("committed_offset", "committed_metadata") if name in fields}
        wanted = OffsetCommitRequest.OffsetCommitRequestPartition(
            **{"partition_index": partition, "committed_offset": 1, "committed_metadata": "", **parts}
        )
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[wanted])]
        answer = self.ask(OffsetCommitRequest(group_id=group, topics=topics, **fields), version)
        return answer.topics[0].partitions[0].error_code

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
        answer = self.ask(
            OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)]), 9
        )
        assert answer.groups[0].error_code == 0
        return answer.groups[0].topics[0].partitions[0].committed_offset

    def heartbeat(self, group: str, member_id: str = "member", epoch: int = 0, version: int = 1, **fields: Any) -> Any:
        """A heartbeat of the newer protocol; it joins if the epoch is 0."""
        if epoch == 0:
            fields = {
                "rebalance_timeout_ms": 5000,
                "subscribed_topic_names": ["nowhere"],
                "topic_partitions": [],
                **fields,
            }
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
        return self.ask(request, version)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            assert chunk, f"the connection ended after {len(data)} of {size} bytes"
            data += chunk
        return bytes(data)


class Background:
    """Another member, on a connection of its own, whose join waits for others."""

    def __init__(self, bootstrap: str, request: Message, version: int) -> None:
        self._asker = Asker(bootstrap)
        self._answers: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._answers.append(self._asker.ask(request, version)))
        self._thread.start()

    def result(self) -> Any:
        self._thread.join(TIMEOUT_S)
        self._asker.__exit__()
        assert self._answers, "no answer came"
        return self._answers[0]


def join_request(group: str, member_id: str = "", **fields: Any) -> JoinGroupRequest:
    names = fields.pop("protocols", {"range": b""})
    return JoinGroupRequest(
        **{
            "group_id": group,
            "member_id": member_id,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in names.items()
            ],
            **fields,
        }
    )
