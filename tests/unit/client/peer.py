"""A scripted broker: it answers each request as a test says, and keeps what came. On a real socket, or in a `simulated`
test on a simulated one."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Self, cast

from tailrace.client.connection import Address, ConnectionLimits
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode
from tailrace.model.ports import Listener, Ports, Stream
from tailrace.real.ports import real_ports
from tailrace.sim.loop import SimLoop
from tailrace.wire.apis import request_type
from tailrace.wire.apis.data import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.compile import decode
from tailrace.wire.frame import decode_request_header, encode_response
from tailrace.wire.schema import Message
from tests.unit.simulated import StreamWriter, simulated_ports

_SIMULATED_HOST = "peer"
# What a script returns instead of a message: nothing is answered, or the connection is closed.
SILENCE = "silence"
HANG_UP = "hang up"

# The id of topic t.
TOPIC_ID = bytes(15) + b"t"

Script = Callable[[Message], Message | bytes | str]


class Peer:
    """`scripts` maps a request class to a function of the request: a message, raw bytes, SILENCE or HANG_UP. It knows
    ApiVersions and Metadata by itself: one broker, and topic `t` with `partitions` partitions."""

    def __init__(
        self,
        scripts: dict[type[Message], Script] | None = None,
        *,
        partitions: int = 1,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.scripts: dict[type[Message], Script] = {
            ApiVersionsRequest: self._api_versions,
            MetadataRequest: self._metadata,
        } | (scripts or {})
        self.requests: list[Message] = []
        self.versions: list[tuple[type[Message], int]] = []
        self.connections = 0
        self.partitions = partitions
        self._tls = tls
        self.ports: Ports
        self._listener: asyncio.Server | Listener
        self.writers: set[asyncio.StreamWriter] = set()
        self._serving: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if isinstance(loop, SimLoop):
            self.ports = simulated_ports(loop, _SIMULATED_HOST)
            self._listener = await self.ports.network.listen(_SIMULATED_HOST, 0, self._accept)
            self.address = Address(_SIMULATED_HOST, self._listener.port)
            return self
        self.ports = real_ports()
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.address = Address("127.0.0.1", self._listener.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for writer in list(self.writers):
            writer.close()
        if isinstance(self._listener, asyncio.Server):
            await self._listener.wait_closed()

    def cluster(self, **limits: int) -> Cluster:
        return Cluster(self.ports, [self.address], limits=ConnectionLimits(**limits))

    def received(self, kind: type[Message]) -> list[Message]:
        return [request for request in self.requests if type(request) is kind]

    def _accept(self, stream: Stream) -> None:
        reader = asyncio.StreamReader()
        writer = cast(asyncio.StreamWriter, StreamWriter(stream, reader))
        self._serving.append(asyncio.ensure_future(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = self._answer(await reader.readexactly(size))
                if answer == HANG_UP:
                    break
                if isinstance(answer, bytes):
                    writer.write(answer)
                    await writer.drain()
        self.writers.discard(writer)
        writer.close()

    def _answer(self, frame: bytes) -> bytes | str:
        header, position = decode_request_header(frame)
        key, version = header.request_api_key, header.request_api_version
        request = decode(request_type(key), version, frame, position)
        self.requests.append(request)
        self.versions.append((type(request), version))
        answer = self.scripts[type(request)](request)
        if not isinstance(answer, Message):
            return answer
        return b"".join(bytes(part) for part in encode_response(key, version, header.correlation_id, answer))

    def _api_versions(self, _request: Message) -> Message:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(
                    api_key=key,
                    min_version=request_type(key).versions.start,
                    max_version=request_type(key).versions.stop - 1,
                )
                for key in ApiKey
                if not key.is_own
            ]
        )

    def _metadata(self, request: Message) -> Message:
        assert isinstance(request, MetadataRequest)
        topics = []
        for name in ["t"] if request.topics is None else [topic.name for topic in request.topics]:
            found = MetadataResponse.MetadataResponseTopic(name=name, topic_id=TOPIC_ID)
            if name == "t":
                found.partitions = [
                    MetadataResponse.MetadataResponsePartition(
                        partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1]
                    )
                    for index in range(self.partitions)
                ]
            else:
                found.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(found)
        broker = MetadataResponse.MetadataResponseBroker(node_id=1, host=self.address.host, port=self.address.port)
        return MetadataResponse(brokers=[broker], cluster_id="c", controller_id=1, topics=topics)
