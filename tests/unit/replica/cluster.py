"""Several managers joined by the real Fetch and ListOffsets handlers on the simulated loop; the test is the controller.

Requests and answers go through the codec, so that records are the bytes that a connection would have brought. A node
crashes by losing all but its disk. Images reach every node at once, unless a test holds them back.

Whole nodes of the simulator would not do: their controller decides by itself, where these tests need leaders, in-sync
sets and images that come late exactly when they say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

from tailrace.broker.context import Pending, RequestContext
from tailrace.broker.handlers.fetch import handle_fetch
from tailrace.broker.handlers.offsets import handle_list_offsets
from tailrace.broker.sessions import FetchSessions
from tailrace.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from tailrace.log.directory import LogDirectory
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, Uuid
from tailrace.replica.manager import ReplicaManager
from tailrace.replica.partition import Partition
from tailrace.sim.background import SimBackground
from tailrace.sim.clock import ProcessClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.loop import SimLoop
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.data import FetchRequest
from tailrace.wire.apis.own import AllowTruncationRequest, AllowTruncationResponse
from tailrace.wire.apis.quorum import AlterPartitionRequest, AlterPartitionResponse
from tailrace.wire.compile import decode, encode
from tailrace.wire.records import iterate_headers, iterate_records
from tailrace.wire.schema import Message
from tests.unit.replica.replicas import batch

R = TypeVar("R", bound=Message)
T = TypeVar("T")

TOPIC = "t"
_VIRTUAL_SECONDS_MAX = 200
FETCH_VERSION, LIST_OFFSETS_VERSION = 17, 9


def simulate(test: Callable[[Cluster], Coroutine[Any, Any, T]], *, nodes: int = 3, seed: int = 1, **config: Any) -> T:
    loop = SimLoop(SimRandom(seed))
    try:
        cluster = Cluster(loop, nodes=nodes, seed=seed, **config)
        return loop.run_until_complete(asyncio.wait_for(test(cluster), _VIRTUAL_SECONDS_MAX))
    finally:
        loop.close()


class Node:
    def __init__(self, cluster: Cluster, node_id: NodeId) -> None:
        self.cluster = cluster
        self.id = node_id
        self.clock = ProcessClock(cluster.loop.world)
        self.disk = SimDisk(self.clock)
        self.background: Any = SimBackground()
        self.image: MetadataImage | None = None
        self.is_up = False

    def start(self) -> None:
        cluster = self.cluster
        self.directory = LogDirectory.open(
            self.disk, self.clock, SimRandom(self.id), "data", node_id=self.id, cluster_id="c" * 22
        )
        config = BrokerConfig(node_id=self.id, log_dirs=("data",), **cluster.config)
        self.replicas = ReplicaManager(
            config,
            [self.directory],
            background=self.background,
            clock=self.clock,
            leaders=_Leaders(cluster, self.id),
            alter_partition=lambda request: cluster.alter_partition(self.id, request),
            ask_leave=cluster.allow_truncation,
        )
        sessions = FetchSessions(self.clock, SimRandom(self.id), slots_max=100, partitions_max=10_000)
        self.broker = SimpleNamespace(
            replicas=self.replicas,
            sessions=sessions,
            config=config,
            image=None,
            node_id=self.id,
            listeners=(),
            access=None,
        )
        self.is_up = True
        self.image = None
        self.replicas.broker_epoch = cluster.register(self.id)

    def follow(self, image: MetadataImage) -> None:
        if self.is_up:
            old, self.image = self.image, image
            self.broker.image = image
            self.replicas.follow_image(old, image)

    def crash(self, *, power_loss: bool = False) -> None:
        self.is_up = False
        self.replicas.close()
        if power_loss:
            self.disk.power_loss(SimRandom(5))
        else:
            self.disk.crash()

    def partition(self, index: int = 0) -> Partition:
        return self.replicas.partitions[TOPIC, index]

    def values(self, index: int = 0) -> list[bytes]:
        """The values of all records in the log, in order."""
        log = self.partition(index).log
        found: list[bytes] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            records = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
            assert records is not None
            data = records.read()
            for position, header in iterate_headers(data):
                batch_bytes = data[position : position + header.size_bytes]
                found += [
                    bytes(each.value or b"") for each in iterate_records(batch_bytes, max_decompressed_bytes=1 << 20)
                ]
                offset = header.next_offset
        return found

    def append(self, *values: bytes, index: int = 0, acks: int = -1, **options: Any) -> asyncio.Future[None]:
        """Ends when the records are confirmed."""
        partition = self.partition(index)
        result = partition.append(batch(*values, **options), required_acks=acks)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell(error: KafkaError | None) -> None:
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        partition.wait_for_high_watermark(result.next_offset, tell)
        return done


class _Leaders:
    def __init__(self, cluster: Cluster, node_id: NodeId) -> None:
        self._cluster = cluster
        self._id = node_id

    async def call(self, node_id: int, request: Message, response_type: type[R], *, timeout_ms: int, channel: str) -> R:
        cluster = self._cluster
        version = FETCH_VERSION if isinstance(request, FetchRequest) else LIST_OFFSETS_VERSION
        sent = decode(type(request), version, bytes(encode(request, version)))
        await cluster.travel(self._id, node_id)
        node = cluster.nodes[NodeId(node_id)]
        answer = await node_answer(node, sent, version)
        await cluster.travel(node.id, self._id)
        if not cluster.nodes[self._id].is_up:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "nobody is there to hear the answer")
        return decode(response_type, version, answer)


async def node_answer(node: Node, request: Message, version: int) -> bytes:
    context = RequestContext(
        api_key=request.api_key,
        api_version=version,
        correlation_id=1,
        client_id="test",
        peer="test",
        listener=SimpleNamespace(name="PLAINTEXT"),  # type: ignore[arg-type]
    )
    handle: Any = handle_fetch if isinstance(request, FetchRequest) else handle_list_offsets
    answer = handle(node.broker, context, request)
    if isinstance(answer, Pending):
        delivered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.deliver_to(lambda response: delivered.done() or delivered.set_result(response))
        answer = await delivered
    return bytes(encode(answer, version))


class Cluster:
    def __init__(self, loop: SimLoop, *, nodes: int, seed: int, **config: Any) -> None:
        self.loop = loop
        self.config = {"replica_lag_time_max_ms": 2000, "replica_fetch_backoff_ms": 100, **config}
        self.random = SimRandom(seed)
        self.brokers: dict[NodeId, BrokerImage] = {}
        self.partitions: dict[int, PartitionImage] = {}
        self.configs: dict[str, str] = {}
        self.topic_id = Uuid(b"t" * 16)
        self.offset = 0  # The end of the metadata log.
        self.cut: set[tuple[int, int]] = set()  # From, to.
        self.deaf: set[int] = set()  # Nodes that images do not reach for now.
        self.alter_requests: list[AlterPartitionRequest] = []
        self.alter_gate = asyncio.Event()
        self.alter_gate.set()
        self.alter_seconds_max = 0.0  # How long the controller may take over a proposal.
        self.nodes = {NodeId(1 + number): Node(self, NodeId(1 + number)) for number in range(nodes)}
        self.racks: dict[int, str] = {}
        # What the controller says to a follower that wants to cut what was confirmed, and how often it was asked.
        self.leave = ErrorCode.NONE
        self.leave_requests: list[AllowTruncationRequest] = []

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[NodeId(node_id)]

    def start(self, **topic_config: str) -> None:
        self.configs = {name.replace("_", "."): value for name, value in topic_config.items()}
        for node in self.nodes.values():
            node.start()

    # ---- the controller

    def register(self, node_id: NodeId) -> int:
        self.offset += 1
        self.brokers[node_id] = BrokerImage(
            node_id=node_id,
            epoch=self.offset,
            incarnation_id=Uuid(bytes(16)),
            endpoints=(),
            rack=self.racks.get(node_id),
            fenced=False,
            in_controlled_shutdown=False,
            log_dirs=(),
        )
        return self.offset

    def fence(self, node_id: int, *, fenced: bool = True) -> None:
        self.brokers[NodeId(node_id)] = self.brokers[NodeId(node_id)]._replace(fenced=fenced)
        self.publish()

    def set(
        self,
        *,
        leader: int | None = None,
        isr: Sequence[int] | None = None,
        replicas: Sequence[int] | None = None,
        recovery_state: int = 0,
        index: int = 0,
    ) -> None:
        """A change of the partition; a named leader gets a new epoch."""
        everyone = tuple(self.nodes)
        old = self.partitions.get(index) or PartitionImage(everyone, everyone, NodeId(-1), -1, -1)
        new = old._replace(partition_epoch=old.partition_epoch + 1)
        if replicas is not None:
            new = new._replace(replicas=tuple(NodeId(each) for each in replicas))
        if isr is not None:
            new = new._replace(isr=tuple(NodeId(each) for each in isr))
        if leader is not None:
            new = new._replace(
                leader=NodeId(leader), leader_epoch=old.leader_epoch + 1, leader_recovery_state=recovery_state
            )
        self.partitions[index] = new
        self.publish()

    def publish(self) -> None:
        self.offset += 1
        image = self.image()
        for node in self.nodes.values():
            if node.id not in self.deaf:
                node.follow(image)

    def image(self) -> MetadataImage:
        topic = TopicImage(TOPIC, self.topic_id, dict(self.partitions))
        return MetadataImage(
            "c" * 22,
            next_offset=self.offset,
            topics={TOPIC: topic},
            topic_names={self.topic_id: TOPIC},
            brokers=dict(self.brokers),
            configs={(2, TOPIC): self.configs},
        )

    async def alter_partition(self, node_id: NodeId, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.alter_requests.append(request)
        await self.travel(node_id, 0)
        await self.alter_gate.wait()
        await asyncio.sleep(self.random.random() * self.alter_seconds_max)
        answers = [self._decide(node_id, asked) for topic in request.topics for asked in topic.partitions]
        self.publish()
        await asyncio.sleep(self.random.random() * self.alter_seconds_max)
        await self.travel(0, node_id)
        return AlterPartitionResponse(
            topics=[AlterPartitionResponse.TopicData(topic_id=self.topic_id, partitions=answers)]
        )

    async def allow_truncation(self, request: AllowTruncationRequest) -> AllowTruncationResponse:
        self.leave_requests.append(request)
        await self.travel(NodeId(request.broker_id), 0)
        if self.leave is ErrorCode.UNSUPPORTED_VERSION:
            raise KafkaError(self.leave, "a controller of Kafka's")
        return AllowTruncationResponse(error_code=self.leave)

    def _decide(
        self, node_id: NodeId, asked: AlterPartitionRequest.PartitionData
    ) -> AlterPartitionResponse.PartitionData:
        state = self.partitions[asked.partition_index]
        answer = AlterPartitionResponse.PartitionData(partition_index=asked.partition_index)
        members = {each.broker_id: each.broker_epoch for each in asked.new_isr_with_epochs}
        if state.leader != node_id or asked.leader_epoch != state.leader_epoch:
            answer.error_code = int(ErrorCode.FENCED_LEADER_EPOCH)
        elif asked.partition_epoch != state.partition_epoch:
            answer.error_code = int(ErrorCode.INVALID_UPDATE_VERSION)
        elif any(
            not self.brokers[NodeId(each)].is_active or epoch not in (-1, self.brokers[NodeId(each)].epoch)
            for each, epoch in members.items()
        ):
            answer.error_code = int(ErrorCode.INELIGIBLE_REPLICA)
        else:
            state = state._replace(
                isr=tuple(NodeId(each) for each in members), partition_epoch=state.partition_epoch + 1
            )
            self.partitions[asked.partition_index] = state
            answer.leader_id, answer.leader_epoch = state.leader, state.leader_epoch
            answer.isr, answer.partition_epoch = list(state.isr), state.partition_epoch
        return answer

    # ---- the network

    async def travel(self, source: int, target: int) -> None:
        await asyncio.sleep(self.random.random() / 1000)
        is_down = any(not self.nodes[NodeId(each)].is_up for each in (source, target) if each != 0)
        if is_down or (source, target) in self.cut:
            await asyncio.sleep(0.05)
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{source} cannot reach {target}")

    def isolate(self, node_id: int) -> None:
        for other in self.nodes:
            self.cut |= {(node_id, other), (other, node_id)}
        self.cut |= {(node_id, 0), (0, node_id)}

    def heal(self) -> None:
        self.cut.clear()

    async def settle(self, seconds: float = 1.0) -> None:
        await asyncio.sleep(seconds)
