"""What a client knows of the cluster: its brokers, the leaders of partitions, and a connection to each broker.

Knowledge comes from Metadata requests and may be old at any time: whoever is told so by a broker, by
NOT_LEADER_OR_FOLLOWER and its like, lets the cluster forget it. Only topics that were asked for are kept, and at most
one connection per broker, so both are bounded by what the caller uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import NamedTuple, TypeVar

from tailrace.client.connection import (
    CLIENT_SOFTWARE,
    Address,
    Connection,
    ConnectionLimits,
    Login,
    error_code,
    open_connection,
)
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, PartitionIndex, TopicPartition, Uuid
from tailrace.model.ports import Dialer, Ports
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse

T = TypeVar("T")

DEFAULT_PORT = 9092


class PartitionMetadata(NamedTuple):
    partition: PartitionIndex
    leader_id: NodeId  # -1 while there is none
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error: ErrorCode


class TopicMetadata(NamedTuple):
    name: str
    id: Uuid
    is_internal: bool
    partitions: dict[int, PartitionMetadata]  # in the order of their index


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """`host:port,host:port`; a missing port is 9092. Raises ValueError."""
    addresses = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        host, colon, port = word.rpartition(":")
        if not colon or word.endswith("]"):
            host, port = word, str(DEFAULT_PORT)
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{word!r} is not an address: expected host:port, such as 127.0.0.1:{DEFAULT_PORT}")
        addresses.append(Address(host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise ValueError(f"no bootstrap address given: expected host:port, such as 127.0.0.1:{DEFAULT_PORT}")
    return tuple(addresses)


class Cluster:
    """The cluster behind a list of bootstrap addresses. `close` it at the end."""

    def __init__(
        self,
        ports: Ports,
        bootstrap: Collection[Address],
        *,
        client_id: str = CLIENT_SOFTWARE,
        limits: ConnectionLimits | None = None,
        login: Login | None = None,
        dialer: Dialer | None = None,
    ) -> None:
        """`dialer` if connections are not opened by the network of `ports` as it is."""
        self.ports = ports
        self.brokers: dict[NodeId, Address] = {}
        self.cluster_id: str | None = None
        self.controller_id = NodeId(-1)
        self.limits = limits or ConnectionLimits()
        self._bootstrap = tuple(bootstrap)
        self.client_id = client_id
        self._login = login
        self._dialer = dialer or ports.network
        self._topics: dict[str, TopicMetadata] = {}
        self._connections: dict[Address, Connection] = {}
        # While one caller connects to an address, the others wait for the same connection.
        self._connecting: dict[Address, asyncio.Lock] = {}

    def twin(self) -> Cluster:
        """The same one, by connections of its own: on one connection a broker answers in order, so that everything
        waits behind a fetch that waits for records. To be closed for itself."""
        return Cluster(
            self.ports,
            self._bootstrap,
            client_id=self.client_id,
            limits=self.limits,
            login=self._login,
            dialer=self._dialer,
        )

    async def connection_to(self, node_id: NodeId) -> Connection:
        address = self.brokers.get(node_id)
        if address is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {node_id} is not among the live ones")
        return await self._connect(address)

    async def any_connection(self) -> Connection:
        """To whichever broker can be reached; raises the last failure if there is none, or one that does not pass:
        behind a wrong password it is no news that another broker is down."""
        failure: KafkaError | None = None
        for address in self.addresses():
            try:
                return await self._connect(address)
            except KafkaError as error:
                if failure is None or failure.code.retriable:
                    failure = error
        assert failure is not None, "parse_bootstrap gives one address at least"
        raise failure

    def addresses(self) -> list[Address]:
        """Where a broker may be: those that are known, and those that were given."""
        return list(dict.fromkeys((*self.brokers.values(), *self._bootstrap)))

    async def _connect(self, address: Address) -> Connection:
        async with self._connecting.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = await self.open(address)
                self._connections[address] = connection
            return connection

    async def open(self, address: Address) -> Connection:
        """A connection that belongs to the caller alone, who closes it."""
        return await open_connection(
            self._dialer, address, client_id=self.client_id, limits=self.limits, login=self._login
        )

    def known_topic(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    async def topic(self, name: str) -> TopicMetadata:
        """From memory if it is known. Raises KafkaError as the broker has it."""
        known = self._topics.get(name)
        return known if known is not None else (await self.refresh([name]))[name]

    async def leader_of(self, partition: TopicPartition) -> PartitionMetadata:
        """Raises KafkaError, a retriable one if the partition has no leader now."""
        topic = await self.topic(partition.topic)
        found = topic.partitions.get(partition.partition)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {partition.topic} has no partition {partition.partition}: it has {len(topic.partitions)}",
            )
        if found.leader_id < 0:
            self.forget(partition.topic)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader at the moment")
        return found

    def forget(self, topic: str) -> None:
        """What is known of the topic is out of date: ask again before it is used next."""
        self._topics.pop(topic, None)

    def forget_all(self) -> None:
        self._topics.clear()

    async def refresh(
        self, topics: Iterable[str] | None, *, allow_auto_creation: bool = False
    ) -> dict[str, TopicMetadata]:
        """Asks a broker about these topics, or about all (None), which are then not kept. Raises KafkaError if one of
        the topics that were named cannot be described."""
        names = None if topics is None else list(topics)
        wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        connection = await self.any_connection()
        answer = await connection.call(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=allow_auto_creation), MetadataResponse
        )
        self.brokers = {NodeId(broker.node_id): Address(broker.host, broker.port) for broker in answer.brokers}
        self.cluster_id = answer.cluster_id
        self.controller_id = NodeId(answer.controller_id)
        self._drop_connections_to_strangers()
        found = {}
        for topic in answer.topics:
            if topic.error_code and names is not None:
                raise _refusal(topic)
            if topic.name is not None and not topic.error_code:
                found[topic.name] = _topic_metadata(topic.name, topic)
        for name in names or ():
            if name not in found:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the broker says nothing of topic {name}")
            self._topics[name] = found[name]
        return found

    def _drop_connections_to_strangers(self) -> None:
        known = {*self.brokers.values(), *self._bootstrap}
        for address in [address for address in self._connections if address not in known]:
            self._connections.pop(address).close()
            self._connecting.pop(address, None)

    async def with_retries(self, action: Callable[[], Awaitable[T]], *, timeout_ms: int) -> T:
        """Repeats an action as long as it fails with a retriable error and the time has not passed."""
        deadline = self.ports.clock.monotonic_ms() + timeout_ms
        attempt = 0
        while True:
            try:
                return await action()
            except KafkaError as error:
                pause_ms = self.backoff_ms(attempt)
                if not error.code.retriable or self.ports.clock.monotonic_ms() + pause_ms > deadline:
                    raise
            attempt += 1
            await asyncio.sleep(pause_ms / 1000)

    def backoff_ms(self, attempt: int) -> float:
        """Twice as long each time, up to a bound, and spread so that clients do not come back all at once."""
        longest = self.limits.retry_backoff_max_ms
        return min(longest, self.limits.retry_backoff_ms << min(attempt, 10)) * (0.8 + 0.4 * self.ports.random.random())

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def _refusal(topic: MetadataResponse.MetadataResponseTopic) -> KafkaError:
    code = error_code(topic.error_code)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return KafkaError(
            code, f"topic {topic.name} does not exist; create it with: tailrace topic create {topic.name}"
        )
    return KafkaError(code, f"topic {topic.name} cannot be described")


def _topic_metadata(name: str, topic: MetadataResponse.MetadataResponseTopic) -> TopicMetadata:
    partitions = [
        PartitionMetadata(
            PartitionIndex(partition.partition_index),
            NodeId(partition.leader_id),
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
            error_code(partition.error_code),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    ]
    return TopicMetadata(
        name, Uuid(topic.topic_id), topic.is_internal, {found.partition: found for found in partitions}
    )
