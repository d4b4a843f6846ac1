"""Features: what the cluster has agreed to use (KIP-584).

A feature has a level. Nodes tell at their registration which levels they can do; the level that all of them use is
finalized by a record. kraft.version belongs to the quorum itself, which is always dynamic: it has one level, and no
record of the controller.
"""

from collections.abc import Mapping

from tailrace.controller.image import METADATA_VERSION, METADATA_VERSION_LEVEL, MetadataImage, ResourceType
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.stored_records import ConfigRecord, FeatureLevelRecord
from tailrace.wire.schema import Message

KRAFT_VERSION = "kraft.version"
KRAFT_VERSION_LEVEL = 1
STREAMS_VERSION = "streams.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
# Our own: the metadata has records about mirrors, which nodes of Apache Kafka do not know. Finalized by the first link.
MIRROR_VERSION = "tailrace.mirror.version"

# The levels that this code can do. What every node registers and ApiVersions tells.
SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: (METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL),
    KRAFT_VERSION: (0, KRAFT_VERSION_LEVEL),
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
    "share.version": (0, 1),
    STREAMS_VERSION: (0, 1),
    MIRROR_VERSION: (0, 1),
}
# What is not finalized before it is needed.
_LATER = (KRAFT_VERSION, MIRROR_VERSION)

MIN_INSYNC_REPLICAS = "min.insync.replicas"
# Told by brokers alone, and never finalized: those of Apache Kafka do not have them.
REMOTE_STORAGE = "tailrace.remote.storage"
QUEUES = "tailrace.queues"


def broker_features(config: BrokerConfig) -> list[tuple[str, int, int]]:
    """What a broker with these settings tells at its registration: names with the lowest and the highest level."""
    features = [*((name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()), (QUEUES, 0, 1)]
    return [*features, (REMOTE_STORAGE, 0, 1)] if config.remote_log_storage_system_enable else features


def bootstrap_records(config: BrokerConfig) -> list[Message]:
    """The first records of a new cluster: each feature at its highest level, and what they need."""
    levels = [
        FeatureLevelRecord(name=name, feature_level=highest)
        for name, (_, highest) in SUPPORTED_FEATURES.items()
        if name not in _LATER
    ]
    return [*levels, *default_min_insync_replicas(config)]


def default_min_insync_replicas(config: BrokerConfig) -> list[Message]:
    """Which replicas are eligible depends on min.insync.replicas, so that controllers and leaders must agree on it:
    what the controller's file says is stored for all, as in Kafka, and IncrementalAlterConfigs changes it."""
    value = str(config.min_insync_replicas)
    return [ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=MIN_INSYNC_REPLICAS, value=value)]


def keeps_eligible_leader_replicas(image: MetadataImage) -> bool:
    return image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1


def check_registered_features(image: MetadataImage, offered: Mapping[str, tuple[int, int]]) -> None:
    """A node that cannot do what the cluster uses must not join it. Raises KafkaError UNSUPPORTED_VERSION."""
    for name, level in image.features.items():
        lowest, highest = offered.get(name, (0, 0))
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. The "
                f"broker wants a version between {lowest} and {highest}, inclusive.",
            )
