"""The cluster's metadata as of one offset of the metadata log: topics, partitions, brokers, settings, features, ACLs.

An image is never changed: whoever holds one may read it at leisure while the log goes on. Two images share all the
parts that did not change between them, so `old.topics is new.topics` tells at once that no topic did. Only
controller.replay makes new ones.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import Any, NamedTuple

from tailrace.model.acls import Acl
from tailrace.model.config import Endpoint
from tailrace.model.ids import ZERO_UUID, NodeId, Uuid
from tailrace.model.quotas import Quotas
from tailrace.model.security import Principal

NO_LEADER = NodeId(-1)
# The feature level of Kafka 4.3: it fixes the versions in which metadata records are written.
METADATA_VERSION = "metadata.version"
METADATA_VERSION_LEVEL = 30
# Ids of directories that name none, with Kafka's numbers (KIP-858): nothing was ever told of it, the broker has yet to
# choose, and the replica lay in one that is gone.
UNKNOWN_DIRECTORY = ZERO_UUID
UNASSIGNED_DIRECTORY = Uuid(bytes(15) + b"\x01")
LOST_DIRECTORY = Uuid(bytes(15) + b"\x02")
# A replica that lies there gets a place as soon as its broker sees it.
NO_DIRECTORY = (UNKNOWN_DIRECTORY, UNASSIGNED_DIRECTORY)


class ResourceType(IntEnum):
    """What a setting belongs to; the numbers are those of the config requests and of ConfigRecord."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class MirrorState(IntEnum):
    """The numbers are those of MirrorTopicRecord."""

    MIRRORING = 0
    PROMOTING = 1  # To be opened once it has all that the source has.
    OPEN = 2  # A topic like any other.
    CUTTING = 3  # What the source does not have is cut here, by an operator's decision. Then it is mirrored on.


class MirrorTopic(NamedTuple):
    """What a topic mirrors, or has mirrored."""

    link_id: Uuid
    source_topic: str
    source_topic_id: Uuid  # ZERO_UUID where the source has no ids.
    state: MirrorState
    # Its leaders write what ends the mirror before anything else in this leader epoch or a later one; all that was
    # mirrored is of earlier ones. -1 until it is opened.
    opening_epoch: int = -1
    handover_id: Uuid = ZERO_UUID  # Of the last promote, each of which has one of its own.
    origins: tuple[str, ...] = ()  # The clusters that it comes from; the last one is the link's source.

    @property
    def is_read_only(self) -> bool:
        return self.state is not MirrorState.OPEN


class ClosedTopic(NamedTuple):
    """Who mirrors a topic from here, and has taken it over: nobody writes to it here any more."""

    cluster_id: str
    handover_id: Uuid


class MirrorLink(NamedTuple):
    """Another cluster of which topics are mirrored here. See controller.mirrors."""

    id: Uuid
    name: str
    source_cluster_id: str
    is_paused: bool
    settings: Mapping[str, str]


class PartitionImage(NamedTuple):
    # The first one is the preferred leader.
    replicas: tuple[NodeId, ...]
    # A part of replicas. Empty only where eligible_leader_replicas are kept (KIP-966), and then there is no leader.
    isr: tuple[NodeId, ...]
    # A member of isr, or NO_LEADER.
    leader: NodeId
    # Grows by one whenever the leader is set, even to the same node; partition_epoch with every change.
    leader_epoch: int
    partition_epoch: int
    # The data folder of each replica, in the order of replicas; one of NO_DIRECTORY where its broker has yet to choose.
    directories: tuple[Uuid, ...] = ()
    # Parts of replicas while a reassignment is under way (KIP-455); no node is in both.
    adding_replicas: tuple[NodeId, ...] = ()
    removing_replicas: tuple[NodeId, ...] = ()
    # 1 from an unclean election until the leader says that it has recovered.
    leader_recovery_state: int = 0
    # Replicas outside isr that hold everything committed: they left when too few were in sync to commit more.
    eligible_leader_replicas: tuple[NodeId, ...] = ()
    # The last leader, while neither isr nor eligible replicas can give one.
    last_known_elr: tuple[NodeId, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    def counts_on(self, node_id: int) -> bool:
        """Whether a replica leads, or may be elected because of what it has."""
        return node_id in (self.leader, *self.isr, *self.eligible_leader_replicas, *self.last_known_elr)

    def directory(self, node_id: int) -> Uuid:
        """Where the replica of a node lies."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == node_id:
                return directory
        return UNASSIGNED_DIRECTORY


class TopicImage(NamedTuple):
    name: str
    id: Uuid
    # Dense: the keys are 0 to len - 1, in order.
    partitions: Mapping[int, PartitionImage]
    mirror: MirrorTopic | None = None
    closed: ClosedTopic | None = None

    @property
    def is_read_only(self) -> bool:
        """Clients cannot write to it."""
        return self.closed is not None or (self.mirror is not None and self.mirror.is_read_only)


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
    # Those that work: one that fails is taken out.
    log_dirs: tuple[Uuid, ...]
    # What it can do, by name: the lowest and the highest level.
    features: Mapping[str, tuple[int, int]] = {}

    @property
    def is_active(self) -> bool:
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener_name: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.listener_name == listener_name), None)

    def has_online(self, directory: Uuid) -> bool:
        """Whether a replica that is said to lie there can be served. One without a place gets one."""
        if directory in NO_DIRECTORY:
            return True
        return directory in self.log_dirs or (not self.log_dirs and directory != LOST_DIRECTORY)


class ControllerImage(NamedTuple):
    node_id: NodeId
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]]


class ScramCredential(NamedTuple):
    """See controller.security.credentials. Nothing of it is ever told or logged."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential({self.iterations} iterations)"


class DelegationToken(NamedTuple):
    """Who may log in by it as whom, and until when. Its password follows from its id and a key that only nodes have:
    see controller.security.tokens."""

    id: str
    owner: Principal
    requester: Principal  # Who has asked for it: the owner, or somebody who may do that (KIP-373).
    renewers: tuple[Principal, ...]
    issue_ms: int
    max_ms: int  # It cannot be renewed beyond this.
    expiry_ms: int

    def is_over(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expiry_ms < now_ms


class MetadataImage:
    """All of it. Maps are read-only by agreement: they are shared between images."""

    __slots__ = (
        "acl_ids",
        "acls",
        "brokers",
        "client_quotas",
        "cluster_id",
        "collisions",
        "configs",
        "controllers",
        "delegation_tokens",
        "features",
        "mirror_links",
        "next_offset",
        "next_producer_id",
        "partition_count",
        "partitions_by_broker",
        "scram_credentials",
        "topic_names",
        "topics",
    )

    cluster_id: str
    # Everything before this offset of the metadata log is in the image, nothing after.
    next_offset: int
    topics: Mapping[str, TopicImage]
    topic_names: Mapping[Uuid, str]
    # Names that contain '.' or '_', by the name in which both are '_': such names must not differ in that alone.
    collisions: Mapping[str, str]
    partition_count: int
    # Broker, topic, partitions of which it has a replica: a broker's death looks at these alone. No empty entries.
    partitions_by_broker: Mapping[int, Mapping[str, AbstractSet[int]]]
    brokers: Mapping[int, BrokerImage]
    controllers: Mapping[int, ControllerImage]
    configs: Mapping[tuple[int, str], Mapping[str, str]]
    features: Mapping[str, int]
    next_producer_id: int
    # Each ACL once; its id is random, and names it when it is removed.
    acls: Mapping[Uuid, Acl]
    acl_ids: Mapping[Acl, Uuid]
    # No empty entries: it is empty itself while no quota is set anywhere.
    client_quotas: Quotas
    scram_credentials: Mapping[tuple[str, int], ScramCredential]  # By user and ScramMechanism.
    delegation_tokens: Mapping[str, DelegationToken]  # By their ids.
    mirror_links: Mapping[Uuid, MirrorLink]

    def __init__(self, cluster_id: str, **parts: Any) -> None:
        self.cluster_id = cluster_id
        self.next_offset = parts.get("next_offset", 0)
        self.topics = parts.get("topics", {})
        self.topic_names = parts.get("topic_names", {})
        self.collisions = parts.get("collisions", {})
        self.partition_count = parts.get("partition_count", 0)
        self.partitions_by_broker = parts.get("partitions_by_broker", {})
        self.brokers = parts.get("brokers", {})
        self.controllers = parts.get("controllers", {})
        self.configs = parts.get("configs", {})
        self.features = parts.get("features", {})
        self.next_producer_id = parts.get("next_producer_id", 0)
        self.acls = parts.get("acls", {})
        self.acl_ids = parts.get("acl_ids", {})
        self.client_quotas = parts.get("client_quotas", {})
        self.scram_credentials = parts.get("scram_credentials", {})
        self.delegation_tokens = parts.get("delegation_tokens", {})
        self.mirror_links = parts.get("mirror_links", {})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetadataImage):
            return NotImplemented
        return all(getattr(self, part) == getattr(other, part) for part in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def mirror_link(self, name: str) -> MirrorLink | None:
        return next((link for link in self.mirror_links.values() if link.name == name), None)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The settings given to a topic, a broker (by its number) or, with an empty name, to all brokers."""
        return self.configs.get((resource_type, name), _NO_CONFIG)

    def is_active(self, node_id: int) -> bool:
        broker = self.brokers.get(node_id)
        return broker is not None and broker.is_active

    def partitions_of(self, node_id: int) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        """The partitions of which a broker has a replica."""
        for name, indexes in self.partitions_by_broker.get(node_id, {}).items():
            topic = self.topics[name]
            for index in sorted(indexes):
                yield topic, index, topic.partitions[index]


_NO_CONFIG: Mapping[str, str] = {}
