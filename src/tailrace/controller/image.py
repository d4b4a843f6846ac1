"""The cluster's metadata as of one offset of the metadata log: topics, partitions, brokers, settings, features.

An image is never changed: whoever holds one may read it at leisure while the log goes on. Two images share all the
parts that did not change between them, so `old.topics is new.topics` tells at once that no topic did. Only
controller.replay makes new ones.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from tailrace.model.config import Endpoint
from tailrace.model.ids import NodeId, Offset, Uuid

NO_LEADER = NodeId(-1)
# The feature level of Kafka 4.3: it fixes the versions in which metadata records are written.
METADATA_VERSION = "metadata.version"
METADATA_VERSION_LEVEL = 30


class ResourceType(IntEnum):
    """What a setting belongs to; the numbers are those of the config requests and of ConfigRecord."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class PartitionImage(NamedTuple):
    # The first one is the preferred leader.
    replicas: tuple[NodeId, ...]
    # A part of replicas; never empty.
    isr: tuple[NodeId, ...]
    # A member of isr, or NO_LEADER.
    leader: NodeId
    # Grows by one whenever the leader is set, even to the same node; partition_epoch with every change.
    leader_epoch: int
    partition_epoch: int
    # The data folder of each replica, in the order of replicas; zero where its broker has yet to choose.
    directories: tuple[Uuid, ...] = ()
    adding_replicas: tuple[NodeId, ...] = ()
    removing_replicas: tuple[NodeId, ...] = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[NodeId, ...] = ()
    last_known_elr: tuple[NodeId, ...] = ()


class TopicImage(NamedTuple):
    name: str
    id: Uuid
    # Dense: the keys are 0 to len - 1, in order.
    partitions: Mapping[int, PartitionImage]


class BrokerImage(NamedTuple):
    node_id: NodeId
    # The offset of its registration: a later incarnation has a larger one.
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    # A fenced broker leads nothing and clients are not sent to it.
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[Uuid, ...]

    @property
    def is_active(self) -> bool:
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener_name: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.listener_name == listener_name), None)


class MetadataImage:
    """All of it. Maps are read-only by agreement: they are shared between images."""

    __slots__ = (
        "brokers",
        "cluster_id",
        "collisions",
        "configs",
        "features",
        "next_offset",
        "next_producer_id",
        "partition_count",
        "topic_names",
        "topics",
    )

    cluster_id: str
    # Everything before this offset of the metadata log is in the image, nothing after.
    next_offset: Offset
    topics: Mapping[str, TopicImage]
    topic_names: Mapping[Uuid, str]
    # Names that contain '.' or '_', by the name in which both are '_': such names must not differ in that alone.
    collisions: Mapping[str, str]
    partition_count: int
    brokers: Mapping[int, BrokerImage]
    configs: Mapping[tuple[int, str], Mapping[str, str]]
    features: Mapping[str, int]
    next_producer_id: int

    def __init__(self, cluster_id: str, **parts: Any) -> None:
        self.cluster_id = cluster_id
        self.next_offset = parts.get("next_offset", Offset(0))
        self.topics = parts.get("topics", {})
        self.topic_names = parts.get("topic_names", {})
        self.collisions = parts.get("collisions", {})
        self.partition_count = parts.get("partition_count", 0)
        self.brokers = parts.get("brokers", {})
        self.configs = parts.get("configs", {})
        self.features = parts.get("features", {})
        self.next_producer_id = parts.get("next_producer_id", 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetadataImage):
            return NotImplemented
        return all(getattr(self, part) == getattr(other, part) for part in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The settings given to a topic, a broker (by its number) or, with an empty name, to all brokers."""
        return self.configs.get((resource_type, name), _NO_CONFIG)

    def active_brokers(self) -> list[BrokerImage]:
        return [broker for _, broker in sorted(self.brokers.items()) if broker.is_active]


_NO_CONFIG: Mapping[str, str] = {}
